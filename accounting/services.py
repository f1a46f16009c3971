"""Services that record releases, gaps and the account book. Callers hold the study's lock."""

from typing import Any
from uuid import UUID

import numpy as np
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from accounting.accounts import Balances, balances, balances_store, gap_surcharges, slack_fits, slack_note
from accounting.models import AccountBook, Release
from common.artifacts import arrays_delete
from consent.models import Study

#: Tolerance for comparing accounts with limits, because sums in another order are rounded differently.
ROUNDING = 1e-9


class LimitExceeded(Exception):
    """Raised if a charge would exceed an account's limit, or if slacks would exceed the study's limit."""


@transaction.atomic(savepoint=False)
def release_record(
    *,
    study: Study,
    kind: str,
    content: dict[str, Any],
    run: UUID | None = None,
    batch: int | None = None,
    holders: np.ndarray | None = None,
    charges: np.ndarray | None = None,
    limits: np.ndarray | None = None,
    charge: float = 0.0,
    acting_user_id: int | None = None,
) -> Release:
    """Record a release in the register and charge accounts for it, in the transaction that writes the release.

    Args:
        study: Locked by :func:`consent.services.study_lock`.
        kind: A :class:`Release.Kind`.
        content: The release in public terms; ``slack`` is the δ′ of a run that is charged as (μ, δ′).
        run: The run that the release belongs to, if any.
        batch: The number of the batch; a batch has at most one release.
        holders: (H,) ids of the charged holders in ascending order.
        charges: (H,) charges in μ².
        limits: (H,) limits of the accounts after the charge, in μ². An account already above its limit, because the
            limit was lowered, must not be charged.
        charge: Largest possible charge to anyone, a public number in μ².
        acting_user_id: The user who requested the release.

    Raises:
        LimitExceeded: an account would exceed its limit, or the study's slacks would exceed the δ reserved for them. In
            that case nothing is written.
    """
    if "slack" in content and not slack_fits(study, content["slack"]):
        raise LimitExceeded(f"A slack of {content['slack']:g} is more than study {study.slug} has left.")
    release = Release(
        study_id=study.pk,
        kind=kind,
        run=run,
        batch=batch,
        content=content,
        charge=charge,
        recorded_by_id=acting_user_id,
    )
    if holders is None or charges is None:
        return Release.append([release])[0]
    if limits is not None and settings.PERSON_CEILING is not None:
        release.content = content | {"ceiling": settings.PERSON_CEILING}
    before = balances(study)
    owed = Balances(holders, charges)
    after = before.charged(owed)
    if limits is not None:
        stands = after.of(holders) + gap_surcharges(study, holders)
        if ((owed.spent > 0) & (stands > limits * (1 + ROUNDING))).any():
            message = f"A {release.get_kind_display()} of study {study.slug} would exceed an account's limit."
            raise LimitExceeded(message)
    release.charges, release.charges_digest = balances_store(study, "charges", owed)
    Release.append([release])
    if "slack" in content:
        slack_note(study)
    book_write(study, after, release.sequence)
    return release


def gap_record(
    *, study: Study, content: dict[str, Any], before: Balances, charge: float, acting_user: AbstractBaseUser | None
) -> Release:
    """Record a gap in the register. It sets a floor for every account and leaves the recorded charges unchanged.

    Args:
        study: Locked by :func:`consent.services.study_lock`.
        content: ``reached``, which is the floor as a share of every cap, and other public facts about the gap.
        before: The accounts when the gap is settled, stored in the release's file.
        charge: Largest possible charge to anyone, a public number in μ².
        acting_user: The user who settled it.
    """
    uncharged = Balances(before.holders, np.zeros(len(before.holders)))
    charges, digest = balances_store(study, "charges", uncharged, before=before.spent)
    release = Release(
        study_id=study.pk,
        kind=Release.Kind.GAP,
        content=content,
        charge=charge,
        charges=charges,
        charges_digest=digest,
        recorded_by_id=acting_user.pk if acting_user else None,
    )
    Release.append([release])
    if "slack" in content:
        slack_note(study)
    book_write(study, before, release.sequence)
    return release


def book_write(study: Study, content: Balances, sequence: int) -> None:
    """Replace the study's account book; the previous file is deleted once the transaction has committed."""
    artifact, digest = balances_store(study, "book", content)
    book = AccountBook.objects.filter(study=study)
    old = book.values_list("artifact", flat=True).first()
    if old is None:
        AccountBook.objects.create(study=study, artifact=artifact, digest=digest, sequence=sequence)
        return
    book.update(artifact=artifact, digest=digest, sequence=sequence)
    transaction.on_commit(lambda: arrays_delete(old))
