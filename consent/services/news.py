"""News of what was learned: put down once, told by mail to those who have decided, and by letter to whom none reaches.

Nobody is told who has withdrawn or had their records erased, or of whom it is on record that they died. Everybody else
who has decided is, whatever they decided: neither a mail nor a letter tells who takes part.
"""

from collections.abc import Collection

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from consent.circumstances import circumstances_last
from consent.models import Circumstance, ConsentEvent, DataHolder, News, Study, study_lock
from consent.services.mail import mails_to_holders

#: Kind of mail of each kind of news.
MAILS = {News.Kind.RESULT: "result_published", News.Kind.YEAR: "results_of_year"}


def news_readers(studies: Collection[Study]) -> QuerySet[ConsentEvent]:
    """Last decisions of those who are told news."""
    later = ConsentEvent.objects.filter(holder=OuterRef("holder"), sequence__gt=OuterRef("sequence"))
    died = circumstances_last(*studies).filter(holder=OuterRef("holder"), kind=Circumstance.Kind.DIED)
    decided = ConsentEvent.objects.filter(study__in=studies, holder__erased_at=None)
    return decided.filter(~Q(kind=ConsentEvent.Kind.WITHDRAWN), ~Exists(later), ~Exists(died))


@transaction.atomic
def news_tell(*, study: Study, kind: str, about: str = "") -> News | None:
    """Put down news, with a mail to everybody whom mails reach and who wishes it.

    Args:
        study: the study.
        kind: one of :class:`consent.models.News.Kind`.
        about: key of the result, of news about one.

    Returns:
        The news; None where the study is closed, or this was told.
    """
    study = study_lock(study.pk)
    earlier = News.objects.filter(study=study, kind=kind, about=about) if about else News.objects.none()
    if study.is_closed or earlier.exists():
        return None
    news = News.objects.create(study=study, kind=kind, about=about, published_at=timezone.now())
    readers = DataHolder.objects.filter(pk__in=news_readers([study]).values("holder"))
    mails_to_holders(MAILS[News.Kind(kind)], readers, study, about=news.pk)
    return news
