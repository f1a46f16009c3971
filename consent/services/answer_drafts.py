"""Answers that people ticked who decide later: kept until they decide, for a month at most.

Whoever can decide for a holder reads them, on any device, and nobody else. Nothing is decided by them.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from consent.models import AnswerDraft, ConsentEvent, DataHolder

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
