"""Random histories of data: encoders, outcomes, counts and rows, removals, erasures and restores."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from accounting.accounts import Balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from accounting.restores import missing_rows
from common.artifacts import arrays_load
from consent.models import DataHolder, Level
from consent.selectors import consent_form_in_force
from consent.services import consent_withdraw
from consent.services.replays import acts_lost
from ipate_web.backups import STORAGES
from learning.formats import Rows, schema_from_json
from learning.mechanisms.protocol import PlanError
from tests.factories import consent_choose, user_create
from tests.restored import backup_of, restore
from tests.training.asking import ASKING_RUN, COUNTED_STEPS_RUN, COUNTS_RUN, SAMPLED_RUN, STEPS_RUN, SYNTHESIS_RUN
from tests.training.runs import TABLE, run_approve, run_draft, study_with_table, table_rows
from tests.training.test_encoders import SCHEMA, images, registered, study_of
from tests.training.test_outcomes import RUN as TARGET_RUN
from tests.training.test_outcomes import document, rows_of
from tests.training.test_outcomes import study_of as target_study
from training.models import Dataset, Encoder, Encoding, Run, RunResult, StudentModel, StudentTraining
from training.services.advance import run_advance, shard_ask
from training.services.datasets import dataset_import, dataset_name
from training.services.encoders import encoder_withdraw, encoding_work
from training.services.erasures import dataset_remove, records_erase
from training.services.publication import result_withdraw
from training.services.restores import restore_settle
from training.services.runs import run_cancel
from training.services.students import student_ask, student_learn, student_publish, student_withdraw
from training.verification import batches_with_votes, checks_of, replay_faults

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages_apart")]

REFUSALS = (ValidationError, PlanError)
OF_TABLES = [ASKING_RUN, STEPS_RUN, SAMPLED_RUN, COUNTED_STEPS_RUN, COUNTS_RUN, SYNTHESIS_RUN]
OF_IMAGES = [each | {"student_learner": "logistic_regression"} for each in (ASKING_RUN, STEPS_RUN, SAMPLED_RUN)]
OF_TARGETS = [TARGET_RUN | {"choices": {"steps": 4, "sigma": 10.0}, "batch_size": 2}]
OF_TARGETS.append(COUNTS_RUN | {"choices": {"column": "length"}})
SEEDS = [*(pytest.param(*each, marks=pytest.mark.exhaustive) for each in (("table", 5), ("images", 3))), ("numbers", 2)]
"""Histories by kind of records. Those of tables and numbers include restores that forget completed disposals."""
WORK = 60
"""Number of steps after which every run has ended."""


class History:
    """A study whose operators, stewards, people and workers act in an order drawn by a seed."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self.kind, self.random, self.folder = kind, random.Random(f"{kind} {seed}"), folder
        self.olga, self.otto = user_create("olga"), user_create("otto")
        self.rows: Callable[[int, int], Rows]
        if kind == "table":
            self.study, self.schema, self.recipes = study_with_table(retain_votes=True), TABLE, OF_TABLES
            self.rows = lambda number, _seed: table_rows(number)
        elif kind == "images":
            self.study, self.schema, self.recipes = study_of(), SCHEMA, OF_IMAGES
            self.rows = images
        else:
            self.study, self.schema = target_study(kind, str(folder)), schema_from_json(document(kind))
            self.recipes = OF_TARGETS
            self.rows = lambda number, seed: rows_of(kind, number, 100 + seed, folder, holders=False)
        self.done: list[str] = []
        self.levels = {event.holder_id: event.level for event in self.study.consent_events.order_by("pk")}
        #: State that never goes back: charges (each charge file once), withdrawals, removals and erasures.
        self.spent, self.charges = Balances.empty(), set[str]()
        self.withheld, self.removed, self.erased = set[str](), set[int](), set[int]()
        self.back_up()

    # --- Actions ---

    def dataset(self, kind: str) -> Dataset | None:
        return self.one(Dataset.objects.filter(study=self.study, kind=kind, removed_at=None))

    def one(self, rows: Any) -> Any:
        found = list(rows.order_by("pk"))
        return self.random.choice(found) if found else None

    def propose(self) -> None:
        recipe, share = self.random.choice(self.recipes), self.random.choice([0.03, 0.06, 0.1])
        fields: dict[str, Any] = {f"{kind}_dataset": self.dataset(kind) for kind in ("private", "public", "test")}
        encoder = self.one(Encoder.objects.filter(study=self.study, withdrawn_at=None))
        if encoder is not None and self.random.random() < 0.8:
            recipe = recipe | {"choices": recipe["choices"] | {"encoder": encoder.digest}}
        run = run_draft(self.study, **fields | recipe)
        if self.random.random() < 0.9:
            run_approve(run=run, acting_user=self.olga, share=share)

    def work(self) -> None:
        for _ in range(self.random.randrange(1, 8)):
            self.work_once()

    def work_once(self) -> None:
        for run in Run.objects.filter(study=self.study, status__in=Run.ACTIVE).order_by("approved_at"):
            run_advance(run.pk)
            for shard in run.shards.all():
                shard_ask(shard.pk)
        for training in StudentTraining.objects.filter(run__study=self.study).exclude(state="done"):
            student_learn(training.pk)
        for encoding in Encoding.objects.filter(encoder__study=self.study, state="waiting"):
            encoding_work(encoding.pk)

    def cancel(self) -> None:
        run = self.one(Run.objects.filter(study=self.study).exclude(status__in=Run.ENDED))
        if run is not None:
            run_cancel(run=run, acting_user=self.olga)

    def decide(self) -> None:
        holder = self.one(DataHolder.objects.filter(study=self.study, erased_at=None))
        level = self.levels.setdefault(holder.pk, Level.LOW)
        consent_choose(holder=holder, level=level, form=consent_form_in_force(self.study))
        self.erased.discard(holder.pk)

    def withdraw(self) -> None:
        holder = self.one(DataHolder.objects.filter(study=self.study, erased_at=None))
        consent_withdraw(holder=holder, acting_user=None)
        self.erased.add(holder.pk)

    def erase(self) -> None:
        records_erase(self.study.pk)

    def remove(self) -> None:
        dataset = self.dataset(self.random.choice(["private", "public", "test"]))
        if dataset is not None:
            dataset_remove(dataset=dataset, reason="Not needed.", acting_user=self.olga)
            self.removed.add(dataset.pk)

    def add(self) -> None:
        kind = self.random.choice(["public", "test"])
        rows = self.rows(24, self.random.randrange(100))
        name = dataset_name(self.study, "more")
        if kind == "public" and self.kind not in ("table", "images"):
            rows = Rows(rows.x, None)
        dataset_import(study=self.study, name=name, kind=kind, rows=rows, schema=self.schema)

    def register(self) -> None:
        if self.kind == "images":
            registered(self.study)

    def withdraw_encoder(self) -> None:
        encoder = self.one(Encoder.objects.filter(study=self.study, withdrawn_at=None))
        if encoder is not None:
            encoder_withdraw(encoder=encoder, reason="Its licence ended.", acting_user=self.olga)

    def train(self) -> None:
        run = self.one(Run.objects.filter(study=self.study, status=Run.Status.FINISHED).exclude(student_learner=""))
        if run is not None:
            same = {"student_learner": run.student_learner, "student_parameters": run.student_parameters}
            student_ask(run=run, acting_user=self.otto, **same)

    def publish(self) -> None:
        version = self.one(StudentModel.objects.filter(run__study=self.study))
        if version is not None:
            student_publish(run=version.run, version=version.version, acting_user=self.olga, reason="Good enough.")

    def withhold(self) -> None:
        version = self.one(StudentModel.objects.filter(run__study=self.study, withdrawn_at=None))
        result = self.one(RunResult.objects.filter(run__study=self.study, withdrawn_at=None))
        if version is not None:
            student_withdraw(run=version.run, version=version.version, reason="It is wrong.", acting_user=self.olga)
            self.withheld.add(version.digest)
        if result is not None:
            result_withdraw(run=result.run, reason="It is wrong.", acting_user=self.olga)
            self.withheld.add(result.digest)

    def back_up(self) -> None:
        self.backup = backup_of(self.study)
        self.files_copy("var", "copies")

    def restore(self) -> None:
        """Restore the database from its backup, and put files back that are missing."""
        restore(self.study, self.backup)
        self.files_copy("copies", "var")

    def settle(self) -> None:
        restore_settle(study=self.study, acting_user=self.olga, given_up=len(acts_lost(self.study).unrecordable))

    def files_copy(self, source: str, to: str) -> None:
        """Copy missing files from a backup, which contains no keys."""
        for alias in STORAGES:
            for file in (self.folder / source / alias).rglob("*"):
                copy = self.folder / to / file.relative_to(self.folder / source)
                if file.is_file() and not copy.exists():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, copy)

    def act(self) -> None:
        often = [*[self.propose] * 6, *[self.work] * 8]
        data = [*[self.remove] * 2, *[self.add] * 3, *[self.register] * 2, self.withdraw_encoder]
        people = [self.decide, self.withdraw, self.erase]
        given = [self.train, self.publish, *[self.withhold] * 2]
        seldom = [*[self.back_up] * 2, *[self.restore] * 2, self.cancel]
        act = self.random.choice([*often, *data, *people, *given, *seldom])
        try:
            act()
            self.done.append(act.__name__)
        except REFUSALS as refusal:
            self.done.append(f"{act.__name__}: {refusal}")
        if missing_rows(self.study) and self.random.random() < 0.7:
            self.settle()
            self.done.append("settle")

    def end(self) -> None:
        """Let workers finish."""
        if missing_rows(self.study):
            self.settle()
        for _ in range(WORK):
            if not Run.objects.filter(study=self.study, status__in=Run.ACTIVE).exists():
                break
            self.work_once()
        self.work_once()
        records_erase(self.study.pk)

    # --- Invariants ---

    def look(self) -> None:
        """Note charges, including those that a restore will forget, and compare them with the promises."""
        for entry in Release.objects.filter(study=self.study).exclude(charges="").exclude(charges__in=self.charges):
            self.charges.add(entry.charges)
            self.spent = self.spent.charged(charges_of(entry))
        largest = float(caps_of(3.0, self.study.delta))
        assert (self.spent.spent <= largest * (1 + 1e-9)).all(), self.done
        if not missing_rows(self.study):
            self.compare()

    def compare(self) -> None:
        """Check that nothing permanently removed has come back."""
        for dataset in Dataset.objects.filter(pk__in=self.removed, study=self.study):
            assert dataset.removed_at is not None, (dataset.name, self.done)
        for model in (StudentModel, RunResult):
            for given in model.objects.filter(digest__in=self.withheld, run__study=self.study):
                assert given.is_withdrawn, (given, self.done)

    def check(self) -> None:
        """Check that releases and charges match the register and a recomputation."""
        assert not Run.objects.filter(study=self.study, status__in=Run.ACTIVE).exists(), self.done
        assert not Encoding.objects.filter(encoder__study=self.study).exclude(state="done").exists(), self.done
        assert [fault for check in checks_of(self.study) for fault in check.faults()] == [], self.done
        for batch in batches_with_votes(self.study):
            assert list(replay_faults(batch)) == [], self.done
        for dataset in Dataset.objects.filter(study=self.study, kind="private", removed_at=None):
            assert not self.erased & set(arrays_load(dataset.artifact, "holder")["holder"].tolist()), self.done


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_promises_and_disposals_hold_in_every_history_of_data(kind: str, seed: int, tmp_path: Path) -> None:
    history = History(kind, seed, tmp_path)
    for _ in range(35):
        history.act()
        history.look()
    history.end()
    history.look()
    history.check()
