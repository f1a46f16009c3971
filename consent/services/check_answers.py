"""First answers to the check questions: kept until they are counted, and no longer than the version of the form."""

from collections.abc import Collection

from django.db import transaction

from consent.models import CheckAnswers, ConsentForm, DataHolder


@transaction.atomic
def check_answer_keep(*, holder: DataHolder, form: ConsentForm, place: int, right: bool) -> None:
    """Keep whether a holder's first answer to one question was right; later answers and counted people change nothing.

    Without the study's lock: nothing is decided by it, and many people read at the same time.

    Args:
        holder: the holder.
        form: the version that they read.
        place: the question's place in :data:`consent.questions.KEYS`.
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
