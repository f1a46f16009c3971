"""Random histories of a whole installation, compared with a computation that forgets nothing.

People are in several studies, through their own account or that of a person who answers for them. Ceilings are raised
and lowered, staff come, leave and are deleted, and backups are restored, also twice in a row, while some studies stay
locked. Nobody is ever charged beyond the promise at the time of the charge, or beyond the ceiling at that time over all
studies of their account; people who withdrew are charged nothing; and only planted faults are found.
"""

import random
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone

from accounting.accounts import account_balances
from accounting.caps import caps_of
from accounting.restores import missing_rows
from accounting.shares import share_free
from accounting.verification import installation_checks
from consent.models import DataHolder, Level, Membership, Role, Study
from consent.people.circumstances import answering_for
from consent.selectors import answerer_faults, consent_current, consent_form_in_force, policy_in_force, promise_faults
from consent.services import (
    consent_refuse,
    consent_withdraw,
    epsilon_policy_approve,
    epsilon_policy_propose,
    holder_link,
    membership_add,
    membership_remove,
)
from consent.services.accounts import account_close, accounts_review
from consent.services.erasures import holders_waiting
from consent.services.holders import circumstance_record
from tests.accounting.charging import share_charge
from tests.accounting.test_restore_drills import backup, restore, settle
from tests.factories import consent_choose, form_publish, holder_create, study_open, user_create
from tests.pages import as_
from training.services.erasures import records_expire, studies_to_erase, study_close
from training.verification import checks_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages_apart")]

STUDIES = ("one", "two", "three")
PEOPLE = 5
POLICIES = [(1.0, 2.0, 3.0), (0.5, 1.0, 1.5), (2.0, 3.0, 4.0)]
CEILINGS = [None, 0.1, 0.3, 0.7, 1.8]
#: Person who answers after a circumstance; nobody after those that are not listed.
ROLES = {"person": "person", "guardian": "guardian", "proxy": "proxy"}
PAGES = ("members", "changes", "policies", "consent_forms", "circumstances", "disposals", "ledger", "committee")


@dataclass
class Policy:
    """A policy as approved, and whether the database has it."""

    pk: int
    approved_at: Any
    epsilons: dict[str, float]


@dataclass
class Person:
    """What really happened to one person in one study, even if a database has forgotten it.

    ``consent`` is the last valid one: level, policy, form, role of the person who gave it, moment. ``is_lost``: whether
    one of their consents was permanently lost, so that its promise is unknown. ``is_erased``: whether they requested
    erasure, and have not returned since.
    """

    spent: float = 0.0
    largest: float = 0.0
    consent: tuple[str, int, int, str, Any] | None = None
    circumstances: list[tuple[Any, str]] = field(default_factory=list)
    is_lost: bool = False
    is_erased: bool = False

    @property
    def answers(self) -> str | None:
        return ROLES.get(self.circumstances[-1][1]) if self.circumstances else "person"

    def takes_part(self) -> bool:
        if self.consent is None:
            return False
        *_rest, role, given_at = self.consent
        return all(ROLES.get(kind) == role for at, kind in self.circumstances if at > given_at)

    def promise(self, known: list[Policy]) -> float:
        assert self.consent is not None
        level, pk, _form, _role, given_at = self.consent
        return min(each.epsilons[level] for each in known if each.pk == pk or each.approved_at > given_at)


class Installation:
    """Studies with their people, and a record of what really happened."""

    def __init__(self, seed: int, settings: Any, folder: Path) -> None:
        self.random, self.settings, self.folder = random.Random(seed), settings, folder
        self.olga, self.staff, self.gone, self.hired = user_create("olga"), list[str](), set[str](), 0
        self.people: dict[tuple[str, str], Person] = {}
        self.policies: dict[str, list[Policy]] = {}
        #: Charges of ended studies to the person of an account, by study.
        self.ended: dict[str, dict[int, float]] = {}
        self.backups: list[Path] = []
        self.seen: dict[str, int] = {}
        for slug in STUDIES:
            study = study_open(slug)
            self._policies_read(study)
            for name in ("conrad", "carla"):
                membership_add(study=study, user=user_create(name), role=Role.COMMITTEE, acting_user=None)
        while len(self.staff) < 2:
            self._hire()
        for number in range(PEOPLE):
            user_create(f"person{number}")
        for _ in range(9):
            self.join()
        self.ceiling()

    # State

    def study(self, slug: str = "") -> Study:
        return Study.objects.get(slug=slug or self.random.choice(STUDIES))

    def holder(self, study: Study) -> tuple[DataHolder, Person] | None:
        known = list(study.holders.order_by("pk")) if study.expired_at is None else []
        if not known:
            return None
        holder = self.random.choice(known)
        return holder, self.people[study.slug, holder.pseudonym]

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1

    def _policies_read(self, study: Study) -> None:
        policy = policy_in_force(study)
        assert policy is not None
        epsilons = {level: policy.epsilon(level) for level in Level.values}
        self.policies.setdefault(study.slug, []).append(Policy(policy.pk, policy.approval.approved_at, epsilons))

    # Actions of people

    def join(self) -> None:
        study, name = self.study(), f"P-{self.random.randrange(PEOPLE)}"
        if study.is_closed or study.holders.filter(pseudonym=name).exists():
            return
        holder_create(study, name)
        self.people.setdefault((study.slug, name), Person())

    def give(self) -> None:
        study = self.study()
        found = self.holder(study)
        if found is None or study.is_closed or missing_rows(study):
            return
        holder, person = found
        level, form, policy = self.random.choice(Level.values), consent_form_in_force(study), policy_in_force(study)
        assert form is not None and policy is not None
        if person.answers is None:
            with pytest.raises(ValidationError):
                consent_choose(holder=holder, level=level, form=form)
            return
        event = consent_choose(holder=holder, level=level, form=form)
        person.consent = (level, policy.pk, form.pk, person.answers, event.recorded_at)
        person.largest, person.is_erased = max(person.largest, policy.epsilon(level)), False

    def leave(self) -> None:
        study = self.study()
        found = self.holder(study)
        if found is None:
            return
        holder, person = found
        current = consent_current(holder)
        if self.random.random() < 0.5:
            consent_refuse(holder=holder, form=consent_form_in_force(study), acting_user=None)
        elif current is not None and current.grants:
            keep = self.random.random() < 0.5
            consent_withdraw(holder=holder, acting_user=None, keep=keep)
            person.is_erased |= not keep
        else:
            return
        person.consent = None

    def circumstance(self) -> None:
        """Record that someone else, nobody, or the person again answers from now on."""
        study, kind = self.study(), self.random.choice(["guardian", "guardian", "person", "proxy", "died"])
        found = self.holder(study)
        if found is None:
            return
        holder, person = found
        until = timezone.localdate() + timedelta(days=1000) if kind == "guardian" else None
        fields = {"pseudonym": holder.pseudonym, "kind": kind, "until": until, "reason": "A letter."}
        began = timezone.now()
        try:
            record = circumstance_record(study=study, acting_user=User.objects.get(username=self.staff[0]), **fields)
        except ValidationError:
            return
        if record.recorded_at >= began:
            person.circumstances.append((record.recorded_at, kind))

    def link(self) -> None:
        """Link the holder to the person's account, to that of someone who answers for them, or to none."""
        found = self.holder(self.study())
        if found is None:
            return
        holder = found[0]
        number = int(holder.pseudonym.removeprefix("P-")) + answering_for(holder).represents
        user = user_create(f"person{number % PEOPLE}") if self.random.random() < 0.9 else None
        try:
            holder_link(holder=holder, user=user)
        except ValidationError:
            self._count("an account decides for one holder of a study")

    # Actions of staff and administrators

    def _hire(self) -> None:
        self.hired += 1
        user = user_create(f"staff{self.hired}")
        for study in Study.objects.all():
            membership_add(study=study, user=user, role=Role.COMMITTEE, acting_user=None)
        self.staff.append(user.username)

    def staff_go(self) -> None:
        """Delete or deactivate someone who has proposed, approved and recorded much; someone new replaces them."""
        user = User.objects.get(username=self.staff[0])
        if self.random.random() < 0.7:
            self.delete(user)
            return
        account_close(user=user, acting_user=None)
        self.staff.remove(user.username)
        self._hire()

    def delete(self, user: User) -> None:
        """Delete an account whose roles someone else has; its proposals and records remain."""
        for membership in Membership.objects.filter(user=user):
            membership_remove(membership=membership, acting_user=None)
        user.delete()
        self.gone.add(user.username)
        if user.username in self.staff:
            self.staff.remove(user.username)
            self._hire()

    def policy(self) -> None:
        study = self.study()
        if study.is_closed:
            return
        first, second = (User.objects.get(username=name) for name in self.staff)
        high, average, low = self.random.choice(POLICIES)
        proposal = epsilon_policy_propose(
            study=study, acting_user=first, high=high, average=average, low=low, reason="So.", name_reason="So."
        )
        if self.random.random() < 0.2:
            self.delete(first)
            with pytest.raises(ValidationError, match="was deleted"):
                epsilon_policy_approve(policy=proposal, acting_user=second)
            return
        epsilon_policy_approve(policy=proposal, acting_user=second)
        self._policies_read(study)

    def form(self) -> None:
        study = self.study()
        if not study.is_closed:
            form_publish(study, {"en": f"Version {study.consent_forms.count() + 1}."})

    def ceiling(self) -> None:
        self.settings.PERSON_CEILING = self.random.choice(CEILINGS)

    def end(self) -> None:
        """Let the last day of a study's records pass."""
        if self.random.random() < 0.1:
            study = self.study()
            if not study.is_closed and not missing_rows(study):
                day = timezone.localdate() - timedelta(days=1)
                study_close(study=study, reason="It is over.", acting_user=self.olga, erase_after=day)
                self.ends_carry_out()

    def ends_carry_out(self) -> None:
        """End studies that are due, as beat does."""
        for study in studies_to_erase():
            linked = study.holders.filter(user__isnull=False).values_list("user", "pseudonym")
            kept = self.settings.PERSON_CEILING is not None
            self.ended[study.slug] = {user: self.people[study.slug, name].spent for user, name in linked if kept}
            records_expire(study=study)
            self._count("ended")

    def charge(self) -> None:
        study, part = self.study(), self.random.choice([1.0, 1.0, 0.6])
        share = min(self.random.choice([0.05, 0.1, 0.2]), share_free(study))
        if study.is_closed or share < 0.01:
            return
        if missing_rows(study):
            with pytest.raises(ValidationError, match="locked"):
                share_charge(study, share)
            return
        charges, known = share_charge(study, share, part), self.policies[study.slug]
        there = set(study.holders.values_list("pseudonym", flat=True))
        own = {name: person for (slug, name), person in self.people.items() if slug == study.slug and name in there}
        assert charges.keys() == {name for name, person in own.items() if person.takes_part()}
        for name, charge in charges.items():
            person = own[name]
            person.spent += charge
            promise = max(person.largest, person.promise(known)) if person.is_lost else person.promise(known)
            if charge:
                self._count("charged")
                cap = float(caps_of(promise, study.delta))
                assert person.spent <= cap * (1 + 1e-9), f"{name} was charged beyond their promise"
                self._ceiling_check(study.holders.get(pseudonym=name))

    def _ceiling_check(self, holder: DataHolder) -> None:
        ceiling = self.settings.PERSON_CEILING
        if ceiling is None or holder.user is None:
            return
        own = DataHolder.objects.filter(user=holder.user).values_list("study__slug", "pseudonym")
        total = sum(self.people[each].spent for each in own)
        for slug in Study.objects.exclude(expired_at=None).values_list("slug", flat=True):
            total += self.ended[slug].get(holder.user.pk, 0.0)
        self._count("charged under a ceiling" if len(own) < 2 else "charged in one of several studies")
        assert total <= ceiling * (1 + 1e-8), f"{holder.user} was charged beyond the ceiling over all studies"

    # Backups

    def back_up(self) -> None:
        self.backups.append(backup(self.folder / f"backup{len(self.backups)}"))

    def put_back(self) -> None:
        place = self.random.randrange(len(self.backups))
        restore(self.backups[place])
        self._count("restored")
        # Later backups no longer belong to this history, but may still be restored.
        for study in Study.objects.all():
            there = set(study.epsilon_policies.values_list("pk", "approval__approved_at"))
            self.policies[study.slug] = [
                each for each in self.policies[study.slug] if (each.pk, each.approved_at) in there
            ]
        for (slug, name), person in self.people.items():
            study = self.study(slug)
            if study.expired_at is not None:
                continue
            if not study.holders.filter(pseudonym=name).exists():
                person.consent, person.circumstances, person.is_lost, person.is_erased = None, [], True, False
            elif person.consent is not None:
                _level, policy, form, _role, at = person.consent
                lost_policy = policy not in {each.pk for each in self.policies[slug]}
                if lost_policy or not study.consent_forms.filter(pk=form, published_at__lte=at).exists():
                    person.consent, person.is_lost = None, True
        # An administrator of the installation reviews who may do what.
        for user in User.objects.filter(username__in=self.gone):
            self.delete(user)
        accounts_review(acting_user=self.olga)
        there = set(User.objects.filter(is_active=True).values_list("username", flat=True))
        self.staff = [name for name in self.staff if name in there]
        while len(self.staff) < 2:
            self._hire()

    def settle(self, slug: str) -> None:
        study = self.study(slug)
        if missing_rows(study):
            settle(study)
            self._count("settled")
        self.ends_carry_out()

    def live(self, steps: int) -> None:
        acts = [
            *(self.give,) * 5,
            *(self.charge,) * 5,
            *(self.link,) * 3,
            *(self.leave, self.circumstance, self.join, self.policy, self.form, self.staff_go, self.ceiling, self.end),
        ]
        for _ in range(steps):
            self.random.choice(acts)()

    # Invariants

    def check(self) -> None:
        """Check that verification finds nothing, and that every account is at least its true value."""
        assert [fault for check in installation_checks() for fault in check.faults()] == []
        for study in Study.objects.all():
            if missing_rows(study):
                continue
            assert [fault for check in checks_of(study) for fault in check.faults()] == []
            assert [*answerer_faults(study), *promise_faults(study)] == []
            waiting = holders_waiting(study)
            for holder in study.holders.all() if study.expired_at is None else ():
                person = self.people[study.slug, holder.pseudonym]
                stands = account_balances(study, np.array([holder.pk]))[0]
                assert person.is_lost or stands >= person.spent * (1 - 1e-9), f"{holder}'s account is below the truth"
                assert holder.pk in waiting or not person.is_erased, (
                    f"{holder} asked for an erasure, which was forgotten"
                )

    def look(self) -> None:
        """Check that pages name the people who acted, even if their accounts were deleted."""
        client = as_(self.olga)
        for study in Study.objects.all():
            for page in PAGES:
                answer = client.get(reverse(f"staff:{page}", args=[study.slug]))
                assert answer.status_code in (200, 403), f"{page} of {study}: {answer.status_code}"


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", [1, 2])
def test_promises_and_ceilings_hold_over_all_studies_and_restores(seed: int, tmp_path: Path, settings: Any) -> None:
    site = Installation(seed, settings, tmp_path)
    site.live(20)
    for _round in range(2):
        site.back_up()
        site.live(site.random.randrange(6, 20))
        for _again in range(site.random.choice([1, 1, 2])):
            site.put_back()
            site.live(site.random.randrange(4))
            site.settle(site.random.choice(STUDIES))
            site.live(site.random.randrange(6))
        for slug in STUDIES:
            site.settle(slug)
        site.check()
        site.live(site.random.randrange(6, 15))
        site.check()
    site.look()
