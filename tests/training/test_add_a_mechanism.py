"""The mechanism that ``docs/add-a-mechanism.md`` builds, built from that page, run, and verified."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.conf import settings
from django.db.models import TextChoices

from accounting.book import charges_of
from accounting.caps import caps_of
from accounting.models import Release
from consent.selectors import consent_snapshot
from learning.mechanisms.counts.table import CountTable
from tests.training.asking import COUNTS_RUN, run_ask
from tests.training.runs import run_like, study_with_table
from training import methods
from training.models import Run
from training.verification import batches_kept, release_faults, replay_faults

pytestmark = [pytest.mark.django_db]

PAGE = Path(settings.BASE_DIR) / "docs" / "add-a-mechanism.md"
OWNED, MOST = 3, 2
"""Records of each holder of the study, and how many of them count."""


def modules() -> dict[str, str]:
    """The code of the page by the name of its module."""
    blocks = re.findall(r"```python\n# (\S+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return {path.replace("/", "."): code for path, code in blocks}


@pytest.fixture
def records_method(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The method of the page, known to the services as its lines elsewhere make it known."""
    for name, code in modules().items():
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, str(PAGE), "exec"), module.__dict__)
    method = sys.modules["training.methods.records"].RecordsMethod()
    known = {each.name: (each.value, each.label) for each in Run.Method} | {"RECORDS": ("records", "are counted")}
    monkeypatch.setattr(Run, "Method", TextChoices("Method", known))  # type: ignore[call-overload]  # as of an Enum
    monkeypatch.setattr(Run._meta.get_field("method"), "choices", Run.Method.choices)
    monkeypatch.setitem(methods.METHODS, method.name, method)
    monkeypatch.setattr(methods, "IMPLEMENTED", (*methods.IMPLEMENTED, method))
    return method


def counted(**choices: Any) -> Run:
    """A run that has counted the records of a small study."""
    study = study_with_table(records=OWNED, retain_votes=True)
    return run_ask(run_like(study, COUNTS_RUN | {"method": "records", "choices": {"most": MOST} | choices}))


def test_the_page_has_the_two_modules_it_speaks_of() -> None:
    assert list(modules()) == ["learning.mechanisms.records", "training.methods.records"]


@pytest.mark.slow
def test_its_release_is_whole_and_nobody_is_charged_more_than_they_allow(records_method: Any) -> None:
    run = counted()
    assert (run.status, run.stop_reason) == (Run.Status.FINISHED, Run.StopReason.COUNTED), run.message
    assert list(release_faults(run)) == []
    assert [list(replay_faults(batch)) for batch in batches_kept(run.study)] == [[]]
    charged = charges_of(Release.objects.get(run=run.pk, kind=Release.Kind.TABLE))
    caps = caps_of(consent_snapshot(run.study).of(charged.holders).epsilons, run.study.delta)
    assert len(charged.holders) == 30
    assert (charged.spent <= 0.5 * caps).all()
    # Everybody owns more records than count, and so adds as much as their weight allows.
    np.testing.assert_allclose(charged.spent, 0.5 * caps, rtol=1e-4)


def test_its_table_without_noise_is_the_number_of_records_that_count(exact: None, records_method: Any) -> None:
    table = CountTable.from_json(counted(weighing="alike").result.content)
    (cell,) = table
    assert (table.columns, cell.values) == (("records",), ("all",))
    assert cell.count == pytest.approx(30 * MOST, rel=1e-3)
    assert records_method.mechanism(Run.objects.get())["name"] == "records"
