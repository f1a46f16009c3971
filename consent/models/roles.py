"""Roles of users in a study, and every change of them."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.studies import Study


class Role(models.TextChoices):
    """Role of a user in one study; see :mod:`consent.permissions`."""

    OPERATOR = "operator", _("operator")
    STEWARD = "steward", _("data steward")
    COMMITTEE = "committee", _("ethics committee")
    CHAIR = "chair", _("chair of the ethics committee")
    AUDITOR = "auditor", _("auditor")
    RESEARCHER = "researcher", _("researcher")


#: Of these a person holds at most one in a study: nobody both operates a study and decides on its ε.
EXCLUSIVE_ROLES = (Role.OPERATOR, Role.COMMITTEE, Role.CHAIR)


class Membership(models.Model):
    """A user's role in a study. Every change of it is recorded as a :class:`RoleChange`."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    # An account is deleted only after its roles have been taken away, on record.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        ordering = ["study", "role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["study", "user", "role"], name="membership_is_given_once"),
            models.UniqueConstraint(
                fields=["study", "user"],
                condition=Q(role__in=EXCLUSIVE_ROLES),
                name="a_user_operates_a_study_or_oversees_it",
                violation_error_message=_(
                    "Nobody has two of the roles operator, ethics committee and chair of the ethics committee in one "
                    "study. Take the other role away first, or choose another person."
                ),
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class RoleChange(StudyChained):
    """A role in a study was given to somebody or taken away."""

    class Kind(models.TextChoices):
        GIVEN = "given", _("given")
        TAKEN = "taken", _("taken away")
        HELD = "held", _("held when this record began")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="role_changes")
    user = actor()
    role = models.CharField(max_length=20, choices=Role)
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = actor(null=True, help_text="Empty: whoever administers the installation, at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(StudyChained.Meta):
        verbose_name = _("change of a role")
        verbose_name_plural = _("changes of roles")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="role_change_sequence_is_unique"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_change_role_is_known"),
            models.CheckConstraint(condition=Q(kind__in=["given", "taken", "held"]), name="role_change_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.kind}: user {self.user_id}"
