"""Personal data of staff members."""

from django.contrib.auth.models import User
from django.db import models
from django.utils.translation import gettext_lazy as _

from consent.models import Study


class SavedList(models.Model):
    """Filters, order and columns of a list of ``study``, saved by ``user`` under a name.

    ``page`` is the name of the list's URL, and ``query`` is appended to the URL.
    """

    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    study = models.ForeignKey(Study, models.CASCADE, related_name="+")
    page = models.CharField(max_length=60)
    name = models.CharField(_("name"), max_length=60)
    query = models.CharField(max_length=1000)

    class Meta:
        verbose_name = _("saved list")
        verbose_name_plural = _("saved lists")
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "study", "page", "name"], name="saved_list_name_is_unique_for_user_and_page"
            )
        ]

    def __str__(self) -> str:
        return self.name
