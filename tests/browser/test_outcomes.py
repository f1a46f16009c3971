"""Models of other outcomes than classes on the page of their run, in lists, and side by side."""

from pathlib import Path

import pytest

from tests.training.asking import COUNTS_RUN
from tests.training.runs import run_finish, run_start
from tests.training.test_outcomes import KINDS, RUN, study_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_how_good_a_model_is_can_be_read(visit, kind: str, tmp_path: Path) -> None:
    study = study_of(kind, str(tmp_path))
    run = run_finish(run_start(study, share=0.5, title="Learned", **RUN))
    other = run_start(study, share=0.1, title="Counted", **COUNTS_RUN | {"choices": {"column": "length", "bins": 2}})
    olga = visit("phone")
    olga.sign_in("olga")
    for address in ("", f"{run.pk}/", f"compare/?run={run.pk}&run={other.pk}"):
        olga.open(f"/studies/{study.slug}/runs/{address}")
        olga.is_in_order()
        olga.fits()
    olga.open(f"/studies/{study.slug}/runs/{run.pk}/")
    lines = olga.page.evaluate(
        "[...document.querySelectorAll('[data-chart=survival]')]"
        ".map((each) => Chart.getChart(each).data.datasets.length)"
    )
    assert lines == ([4] if kind == "times" else [])
