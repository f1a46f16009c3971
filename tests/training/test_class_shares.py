"""Other shares of the classes among people than among public points: said on page and card, by votes and by steps."""

from typing import Any

import pytest
from django.utils import translation

from consent.models import Study
from consent.pdf import tagged_pdf
from ipate_web.staff import report
from learning.formats import Rows
from tests.factories import study_open
from tests.pages import as_, text, url
from tests.snapshots import built_once
from tests.training.asking import ASKING_RUN, STEPS_RUN, NoNoise
from tests.training.runs import TABLE, TABLE_RUN, consents_give, head_counts_state, run_finish, run_start, table_rows
from training.engine import noise
from training.models import Run
from training.services.datasets import dataset_import

pytestmark = pytest.mark.django_db

DIFFERENT = "these classes have other shares among them: a, c."
ALIKE = "No class has another share"


@built_once
def study_of_people(*, shifted: bool, labelled: bool = True) -> Study:
    """Sixty public points of three classes as likely, and sixty people: as likely, or two thirds of them of class a."""
    study = study_open("shifted", delta=1e-4)
    every = table_rows(180)
    kept = [*range(0, 120, 3), *range(1, 49, 3), *range(2, 14, 3)] if shifted else range(60)
    people = Rows(every.x[kept], every.y[kept], [f"p-{place:03}" for place in range(60)])
    public = table_rows(60)
    if not labelled:
        public = Rows(public.x, None)
    for kind, rows in (("private", people), ("public", public), ("test", table_rows(21))):
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=TABLE)
    consents_give(study, "L")
    head_counts_state(study)
    return study


def ended(monkeypatch: pytest.MonkeyPatch, study: Study, fields: dict[str, Any]) -> Run:
    monkeypatch.setattr(noise, "noise_of", lambda run: NoNoise())
    run = run_finish(run_start(study, share=0.5, **fields))
    assert run.status == Run.Status.FINISHED, run.message
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        ASKING_RUN | {"choices": {"sigma": 6.0, "radius_share": 0.2}, "batch_size": 60},
        STEPS_RUN | {"choices": {"steps": 6, "sigma": 4.0}},
    ],
    ids=["votes", "steps"],
)
def test_a_shifted_run_says_so_on_page_and_card(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    """The shifted run: of the public points a third is of each class, of the people 40, 16 and 4 of 60."""
    run = ended(monkeypatch, study_of_people(shifted=True), fields)
    message = run.student.card["shares"]
    assert [row["public"] for row in message["classes"]] == [0.33, 0.33, 0.33] and message["points"] == 60
    for row, share in zip(message["classes"], (40 / 60, 16 / 60, 4 / 60), strict=True):
        assert row["interval"][0] <= share <= row["interval"][1] and row["interval"][0] <= row["people"]
    assert message["differing"] == ["a", "c"]
    page = text(as_("olga").get(url("run", run)))
    assert page.count(DIFFERENT) == 2, "among the results, and on the card"
    assert "needs no correction" in page

    written: list[dict[str, Any]] = []
    monkeypatch.setattr(
        report, "tagged_pdf", lambda file, message: written.append(message) or tagged_pdf(file, message)
    )
    assert as_("olga").get(url("ledger_report_pdf", run)).content.startswith(b"%PDF-")
    (section,) = (each for each in written[0]["sections"] if each["heading"] == "Classes among the people")
    assert DIFFERENT in section["paragraphs"][0] and section["tables"][0]["rows"][0][3] == "33.0 %"
    if fields["method"] == STEPS_RUN["method"]:
        with translation.override("de"):
            german = as_("olga").get(url("run", run), headers={"accept-language": "de"}).content.decode()
        assert "Diese Klassen haben unter ihnen andere Anteile: a, c." in german


@pytest.mark.slow
def test_a_run_whose_people_are_as_the_public_points_says_that(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(monkeypatch, study_of_people(shifted=False), STEPS_RUN)
    assert run.student.card["shares"]["differing"] == []
    page = text(as_("olga").get(url("run", run)))
    assert ALIKE in page and DIFFERENT not in page


@pytest.mark.slow
def test_without_labels_of_public_points_the_shares_of_the_people_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(monkeypatch, study_of_people(shifted=True, labelled=False), STEPS_RUN)
    entry = run.student.card["shares"]
    assert entry["points"] == 0 and entry["differing"] == [] and entry["classes"][0]["public"] is None
    assert "No public points have labels" in text(as_("olga").get(url("run", run)))


@pytest.mark.slow
def test_labels_of_teachers_tell_no_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest class of every point is no share: of a rare class it may be none."""
    assert ended(monkeypatch, study_of_people(shifted=False), TABLE_RUN).student.card["shares"] is None
