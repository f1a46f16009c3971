"""Roles of users in a study, and every change of them."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from consent.models.actors import actor
from consent.models.chains import StudyChained
from consent.models.studies import Study
from consent.role_rules import SEPARATE, Role


class Membership(models.Model):
    """A user's role in a study. Every change of it is recorded as a :class:`RoleChange`."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="memberships")
    # An account is deleted only after its roles have been taken away, on record.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        ordering = ["study", "role", "user"]
        constraints = [
            models.UniqueConstraint(fields=["study", "user", "role"], name="membership_is_given_once"),
            *(
                models.UniqueConstraint(
                    fields=["study", "user"],
                    condition=Q(role__in=roles),
                    name=name,
                    violation_error_message=_(
                        "This person has a role in the study that excludes this one: nobody decides and watches, and "
                        "nobody who sees exact numbers of people proposes runs without operating the study. Take the "
                        "other role away first, or choose another person."
                    ),
                )
                for name, roles in SEPARATE.items()
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.get_role_display()}"


class RoleChange(StudyChained):
    """A role in a study was given to somebody or taken away, or somebody has proposed that.

    A proposal waits while it is the last row about this person and role.
    """

    class Kind(models.TextChoices):
        GIVEN = "given", _("given")
        TAKEN = "taken", _("taken away")
        HELD = "held", _("held when this record began")
        TO_GIVE = "to_give", _("proposed: to be given")
        TO_TAKE = "to_take", _("proposed: to be taken away")
        DROPPED = "dropped", _("proposal dropped")

    PROPOSALS = (Kind.TO_GIVE, Kind.TO_TAKE)
    added_columns = {"proposed_by_id": None}

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="role_changes")
    user = actor()
    role = models.CharField(max_length=20, choices=Role)
    kind = models.CharField(max_length=10, choices=Kind)
    changed_by = actor(null=True, help_text="Empty: whoever administers the installation, at the command line.")
    changed_at = models.DateTimeField(default=timezone.now, editable=False)
    # Of what a second person, changed_by, has confirmed.
    proposed_by = actor(null=True)

    class Meta(StudyChained.Meta):
        verbose_name = _("change of a role")
        verbose_name_plural = _("changes of roles")
        constraints = [
            *StudyChained.Meta.constraints,
            models.CheckConstraint(condition=Q(role__in=Role.values), name="role_change_role_is_known"),
            models.CheckConstraint(
                condition=Q(kind__in=["given", "taken", "held", "to_give", "to_take", "dropped"]),
                name="role_change_kind_is_known",
            ),
            models.CheckConstraint(
                condition=Q(proposed_by=None) | ~Q(changed_by=F("proposed_by")),
                name="role_change_is_confirmed_by_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.kind}: user {self.user_id}"
