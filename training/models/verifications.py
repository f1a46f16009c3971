"""Outcomes of the nightly verification."""

from django.db import models

from consent.models import Study


class Verification(models.Model):
    """Outcome of the last verification of a study, or of what belongs to none: nightly, or by ``verify_ledger``.

    ``found`` names places and numbers: it is for auditors and those who handle consents.
    """

    study = models.OneToOneField(Study, on_delete=models.CASCADE, null=True, related_name="verification")
    claimed_at = models.DateTimeField(null=True, help_text="When a worker last set about it.")
    verified_at = models.DateTimeField(null=True, help_text="When the last one began that was completed.")
    faults = models.PositiveIntegerField(default=0)
    found = models.JSONField(default=list, help_text="Faults in words, with the name of the check; the first ones.")
    fault_for_deciders = models.BooleanField(
        default=False, help_text="Whether a fault is one of which deciders are told."
    )
    locked = models.BooleanField(default=False)

    class Meta:
        verbose_name_plural = "verifications"

    def __str__(self) -> str:
        return f"{self.study or 'installation'}: {self.faults} faults"
