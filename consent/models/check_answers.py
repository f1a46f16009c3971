"""First answers to the check questions, until they are counted."""

from django.db import models
from django.db.models import F, Q

from consent.models.consent_forms import ConsentForm
from consent.models.holders import DataHolder


class CheckAnswers(models.Model):
    """Whether a holder's first answer to each check question of one version of the form was right.

    Two bits for each question, in the order of :data:`consent.questions.KEYS`. They are cleared once they were counted;
    ``counted`` then says that nothing more of this person is kept.
    """

    holder = models.ForeignKey(DataHolder, on_delete=models.CASCADE, related_name="+")
    form = models.ForeignKey(ConsentForm, on_delete=models.CASCADE, related_name="+")
    answered = models.PositiveSmallIntegerField(default=0, help_text="Bit mask of the questions that were answered.")
    right = models.PositiveSmallIntegerField(default=0, help_text="Bit mask of those whose first answer was right.")
    counted = models.BooleanField(default=False)

    class Meta:
        verbose_name = "answers to check questions"
        verbose_name_plural = "answers to check questions"
        constraints = [
            models.UniqueConstraint(fields=["holder", "form"], name="check_answers_of_a_holder_are_one_row"),
            models.CheckConstraint(condition=Q(right__lte=F("answered")), name="check_answers_right_were_answered"),
            models.CheckConstraint(
                condition=Q(counted=False) | Q(answered=0, right=0), name="check_answers_counted_are_cleared"
            ),
        ]

    def __str__(self) -> str:
        return f"answers of holder {self.holder_id}"
