"""Answers beside the decision: those that someone wants to think over, and those to the check questions."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from consent.models import AnswerDraft, CheckAnswers, ConsentEvent, ConsentForm, DataHolder

#: So long an answer is kept.
LASTS = timedelta(days=30)


def answer_draft_keep(*, holder: DataHolder, answer: Mapping[str, Any]) -> None:
    """Keep what a holder ticked, in place of what they ticked earlier."""
    AnswerDraft.objects.update_or_create(holder=holder, defaults={"answer": dict(answer), "kept_at": timezone.now()})


def answer_draft_of(holder: DataHolder) -> dict[str, Any] | None:
    """What a holder ticked and has not decided since, or None."""
    draft = AnswerDraft.objects.filter(holder=holder).exclude(pk__in=_over().values("pk")).first()
    return draft.answer if draft is not None else None


def answer_drafts_forget(holders: Collection[int]) -> None:
    """Delete what is kept of some holders."""
    AnswerDraft.objects.filter(holder__in=holders).delete()


def answer_drafts_sweep() -> None:
    """Delete what was kept long enough, and what was decided since in another way, for example on paper."""
    _over().delete()


def _over() -> QuerySet[AnswerDraft]:
    decided = ConsentEvent.objects.filter(holder=OuterRef("holder"), recorded_at__gt=OuterRef("kept_at"))
    return AnswerDraft.objects.filter(Q(kept_at__lte=timezone.now() - LASTS) | Exists(decided))


@transaction.atomic
def check_answer_keep(*, holder: DataHolder, form: ConsentForm, place: int, right: bool) -> None:
    """Keep whether a holder's first answer to one question was right; later answers and counted people change nothing.

    Without the study's lock: nothing is decided by it, and many people read at the same time.

    Args:
        holder: the holder.
        form: the version that they read.
        place: the question's place in :data:`consent.promises.questions.KEYS`.
        right: whether the answer was right.
    """
    CheckAnswers.objects.get_or_create(holder=holder, form=form)
    row = CheckAnswers.objects.select_for_update().filter(holder=holder, form=form).first()
    bit = 1 << place
    if row is None or row.counted or row.answered & bit:
        return
    row.answered |= bit
    row.right |= bit if right else 0
    row.save(update_fields=["answered", "right"])


def check_answers_forget(holders: Collection[int]) -> None:
    """Delete what is kept of holders who do not take part; the caller holds a transaction."""
    CheckAnswers.objects.filter(holder__in=holders).delete()


def check_answers_supersede(form: ConsentForm) -> None:
    """Delete what was answered to earlier versions of the form; the caller holds a transaction."""
    CheckAnswers.objects.filter(form__study=form.study_id).exclude(form=form).delete()


def check_answers_clear(form: ConsentForm) -> None:
    """Clear all answers to ``form`` once they were counted: those of people who do not take part, too."""
    CheckAnswers.objects.filter(form=form, counted=False).update(answered=0, right=0, counted=True)
