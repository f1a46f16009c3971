"""What was spent, by whom, what may still be spent. Costs are RDP curves; ε is always derived from them."""

from typing import cast

import numpy as np
from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from numpy.typing import ArrayLike

from accounting.curves import CurveField
from accounting.privacy import Conversion, epsilon_from_rdp
from consent.models import DataHolder, Level, Study
from ipate_web.append_only import Chained


class RunAccount(models.Model):
    """The account of one run: its privacy groups and how their costs are counted.

    ``run`` is the run's id; accounting knows nothing else of it. A simulation's account leaves no trace in the ledger.
    From approval to vote the account is a *reservation*: nothing can be charged to it, but what it holds counts as
    spent for every other run. The vote replaces it by the account that is charged; its end settles that account.
    """

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="accounts")
    run = models.UUIDField()
    simulation = models.BooleanField(default=False)
    delta = models.FloatField()
    orders = CurveField(help_text="Rényi orders α at which every curve of this account is kept.")
    method = models.CharField(
        max_length=20, help_text="How costs are counted: data_independent, data_dependent, exact."
    )
    conversion = models.CharField(max_length=10, help_text="RDP → (ε, δ): improved or classic.")
    is_reservation = models.BooleanField(default=False, help_text="The run is approved; its vote has not begun.")
    opened_at = models.DateTimeField(default=timezone.now, editable=False)
    settled_at = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when nothing is held for the run beyond what it spent."
    )

    class Meta:
        verbose_name = _("run account")
        ordering = ["opened_at"]
        constraints = [models.UniqueConstraint(fields=["run", "is_reservation"], name="run_account_is_one_of_its_kind")]

    def __str__(self) -> str:
        return f"account of run {self.run}"

    def epsilon(self, curves: ArrayLike) -> np.ndarray:
        """ε (...,) at the account's δ of RDP curves (..., R) at its orders."""
        conversion = cast(Conversion, self.conversion)
        return epsilon_from_rdp(curves, self.delta, np.asarray(self.orders), conversion=conversion)[0]


class AccountRecord(Chained):
    """That a run's account was opened or settled: one row for each time, chained, so that no account is edited unseen.

    A reservation is opened, and ends when it is replaced by the account that is charged, or released because the run
    never votes.
    """

    class Kind(models.TextChoices):
        RESERVED = "reserved", _("reserved")
        OPENED = "opened", _("opened")
        SETTLED = "settled", _("settled")
        RELEASED = "released", _("released")

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="account_records", db_index=False)
    run = models.UUIDField()
    kind = models.CharField(max_length=10, choices=Kind)
    seals = models.JSONField(
        default=dict, blank=True, help_text="What the account was opened with, see accounting.seals."
    )
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
        verbose_name = _("account record")
        verbose_name_plural = _("account records")
        constraints = [models.UniqueConstraint(fields=["study", "sequence"], name="account_record_sequence_is_unique")]

    def __str__(self) -> str:
        return f"{self.kind}: account of run {self.run}"


class PrivacyGroup(models.Model):
    """Within a run: the holders with the same ε budget and the same past spending.

    ``past_rdp`` is what its holders had spent before this run, ``spent_rdp`` what this run has cost them so far, and
    ``published_rdp`` the data-independent bound on that cost, the only one of the three that may leave staff.
    ``reserved_rdp`` is what no other run may spend until the account is settled. ``allowance`` is the ε that this run
    alone may cost them; without one, everything that is left.
    """

    account = models.ForeignKey(RunAccount, on_delete=models.PROTECT, related_name="groups")
    index = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=40)
    level = models.CharField(max_length=10, choices=Level)
    epsilon = models.FloatField(help_text="The budget: ε that no holder of the group may exceed over all runs.")
    holders = models.PositiveIntegerField()
    past_rdp = CurveField()
    spent_rdp = CurveField()
    published_rdp = CurveField()
    reserved_rdp = CurveField(null=True, blank=True)
    allowance = models.FloatField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Since when its teachers cast no vote.")

    class Meta:
        verbose_name = _("privacy group")
        ordering = ["account", "index"]
        constraints = [
            models.UniqueConstraint(fields=["account", "index"], name="privacy_group_index_is_unique"),
            models.CheckConstraint(condition=Q(epsilon__gt=0), name="privacy_group_budget_is_positive"),
            models.CheckConstraint(
                condition=Q(allowance__isnull=True) | Q(allowance__gt=0), name="privacy_group_allowance_is_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def held_rdp(self) -> np.ndarray:
        """(R,): what is held for the run beyond what it has spent; ``account`` is read."""
        spent = np.asarray(self.spent_rdp)
        if self.account.settled_at or self.reserved_rdp is None:
            return np.zeros_like(spent)
        return np.maximum(np.asarray(self.reserved_rdp) - spent, 0.0)


class SpendingHistory(models.Model):
    """The sequence of privacy groups that some holders have been in: a node of a tree, from the newest to the first.

    Groups that voted stand in the order of their votes; those of reservations in between cost nothing yet.
    Holders with one history have spent the same. One row per history, not per holder and run, keeps a study of a
    million holders and a hundred runs small.
    """

    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="+")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="children")
    group = models.ForeignKey(PrivacyGroup, on_delete=models.PROTECT, related_name="histories")

    class Meta:
        verbose_name = _("spending history")
        verbose_name_plural = _("spending histories")
        constraints = [models.UniqueConstraint(fields=["parent", "group"], name="spending_history_is_one_row")]

    def __str__(self) -> str:
        return f"{self.parent_id or 'start'} → {self.group_id}"


class HolderSpending(models.Model):
    """Which history a holder has. A holder without a row has never been in a vote."""

    holder = models.OneToOneField(DataHolder, on_delete=models.PROTECT, primary_key=True, related_name="spending")
    history = models.ForeignKey(SpendingHistory, on_delete=models.PROTECT, related_name="holders")

    class Meta:
        verbose_name = _("holder's spending")
        # Both columns, so that PostgreSQL counts the holders of each history without looking into the rows.
        indexes = [models.Index(fields=["holder"], include=["history"], name="holder_spending_history")]

    def __str__(self) -> str:
        return f"{self.holder_id}: {self.history_id}"


class LedgerEntry(Chained):
    """What one batch of a run's vote cost one privacy group. Written in the transaction that releases the labels."""

    # A unique constraint begins with each of these two: one more index of their own would only slow writing down.
    study = models.ForeignKey(Study, on_delete=models.PROTECT, related_name="ledger_entries", db_index=False)
    group = models.ForeignKey(PrivacyGroup, on_delete=models.PROTECT, related_name="ledger_entries", db_index=False)
    run = models.UUIDField()
    batch = models.PositiveIntegerField()
    mechanism = models.JSONField(help_text="The aggregator with its parameters.")
    sensitivity = models.FloatField(help_text="By how much one holder of the group can move the vote count.")
    method = models.CharField(max_length=20)
    delta = models.FloatField()
    orders = CurveField()
    rdp = CurveField(help_text="The cost as a curve over the orders. A secret where it depends on the votes.")
    published_rdp = CurveField(help_text="The data-independent bound on the same release.")
    queries = models.PositiveIntegerField(help_text="Points put to the vote in this batch.")
    labels = models.PositiveIntegerField(help_text="How many of them were answered.")
    recorded_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, db_constraint=False, null=True, related_name="+"
    )
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta(Chained.Meta):
        verbose_name = _("ledger entry")
        verbose_name_plural = _("ledger entries")
        constraints = [
            models.UniqueConstraint(fields=["study", "sequence"], name="ledger_entry_sequence_is_unique"),
            models.UniqueConstraint(fields=["group", "batch"], name="ledger_entry_charges_a_batch_once"),
            models.CheckConstraint(
                condition=Q(labels__lte=models.F("queries")), name="ledger_entry_labels_within_queries"
            ),
        ]
        permissions = [("view_private_costs", "Can see data-dependent costs, which must not be published")]

    def __str__(self) -> str:
        return f"run {self.run}, batch {self.batch}, {self.group}"
