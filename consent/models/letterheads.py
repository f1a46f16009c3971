"""Words and logo of the letters that a study sends."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from consent.models.recorded import Recorded
from consent.models.studies import Study


class Letterhead(Recorded):
    """Words and logo of a study's letters, receipts and forms on paper. What is left empty has words of the site."""

    open_fields = ("texts", "logo")

    #: Texts of a letter in each language.
    TEXTS = ("salutation", "text", "refusal", "closing")

    study = models.OneToOneField(Study, on_delete=models.CASCADE, related_name="letterhead")
    texts = models.JSONField(_("texts of letters"), default=dict, blank=True, help_text="Language → text → words.")
    logo = models.TextField(_("logo"), blank=True, help_text="PNG in base 64.")

    class Meta:
        verbose_name = _("letterhead")
        verbose_name_plural = _("letterheads")

    def __str__(self) -> str:
        return f"letterhead of {self.study}"
