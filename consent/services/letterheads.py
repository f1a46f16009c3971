"""Letterheads: the words and the logo of a study's letters."""

import base64
from collections.abc import Mapping

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from common.reading import UnreadableError, picture_redraw
from consent.models import Letterhead, Study, study_lock
from consent.services.changes import changes_recorded

#: Largest logo: bytes as uploaded and as stored, and pixels of its longer side.
MOST_BYTES, MOST_STORED, MOST_PIXELS = 500_000, 60_000, 1_600
#: Pixels of the longer side of a logo as stored: enough for 5 cm on paper.
_STORED_PIXELS = 600


def letterhead_of(study: Study) -> Letterhead:
    """Letterhead of a study; an empty one, not saved, where nothing was written."""
    return Letterhead.objects.filter(study=study).first() or Letterhead(study=study)


def logo_read(content: bytes) -> str:
    """A logo as it is stored: drawn anew from the pixels of a PNG, so that nothing else of the file stays. In base 64.

    Raises:
        ValidationError: no PNG, or too large.
    """
    wrong = ValidationError(
        _("The logo must be a picture of the kind PNG, at most 500 kB and 1,600 pixels wide or high.")
    )
    if len(content) > MOST_BYTES:
        raise wrong
    try:
        drawn = picture_redraw(content, most_pixels=MOST_PIXELS, pixels=_STORED_PIXELS)
    except UnreadableError:
        raise wrong from None
    if len(drawn) > MOST_STORED:
        raise ValidationError(_("The logo has too many details. Use a drawing with few colours, and no photograph."))
    return base64.b64encode(drawn).decode()


@transaction.atomic
def letterhead_save(
    *, study: Study, texts: Mapping[str, Mapping[str, str]], logo: str, acting_user: AbstractBaseUser | None
) -> Letterhead:
    """Save the words and the logo of a study's letters, on record.

    Args:
        study: the study.
        texts: language → text → words; empty ones are left out.
        logo: from :func:`logo_read`; empty: none.
        acting_user: who saves them; None at the command line.
    """
    study = study_lock(study.pk)
    head = letterhead_of(study)
    fields = {
        code: {name: words[name].strip() for name in Letterhead.TEXTS if words.get(name, "").strip()}
        for code, words in texts.items()
    }
    head.texts, head.logo = {code: words for code, words in fields.items() if words}, logo
    with changes_recorded([head], acting_user=acting_user):
        head.save()
    return head
