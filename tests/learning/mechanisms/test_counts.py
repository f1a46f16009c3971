"""Tables of counts: weights, norms, intervals, a person's contribution; means and quantiles."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.formats import ImageSchema, TabularSchema
from learning.formats.columns import CategoricalColumn, CodeColumn, LabelColumn, NumericColumn
from learning.mechanisms.counts import table_plan
from learning.mechanisms.counts.table_plan import Counts, column_names, columns_of
from learning.mechanisms.counts.tables import PERSON, QUANTILES, CountsQuestion, CountTable, mean, quantiles, summaries
from learning.mechanisms.protocol import People, PlannedLevel, Records
from tests.draws import NoNoise

SCHEMA = TabularSchema(
    (
        NumericColumn("age", 0, 100, missing=("?",)),
        CategoricalColumn("job", ("nurse", "smith"), missing=("?",), other=True),
        CategoricalColumn("sex", ("f", "m")),
        LabelColumn("sick"),
    ),
    ("no", "yes"),
)
CAPS = np.array([0.01, 0.04, 0.16])
LEVELS = [PlannedLevel(f"L{number}", cap, 10.0) for number, cap in enumerate(CAPS)]
WHOLE = slice(0, 1)


def records(*rows: tuple[str, str, str, str, int]) -> Records:
    """Return people's records, each as (age, job, sex, sick, owner)."""
    x = SCHEMA.encode([{"age": age, "job": job, "sex": sex} for age, job, sex, _sick, _owner in rows])
    return Records(x, SCHEMA.encode_labels([row[3] for row in rows]), np.array([row[4] for row in rows]))


def people(caps: np.ndarray, spent: float = 0.0) -> People:
    return People(np.arange(len(caps)), caps, caps, np.full(len(caps), spent))


def counts_question(*names: str, share: float = 1.0, weighing: str = "promise", bins: int = 10) -> CountsQuestion:
    columns = columns_of(SCHEMA, names, bins)
    cells = int(np.prod([len(column.cells) for column in columns]))
    plan = table_plan.plan_counts(LEVELS, cells=cells, share=share, counts=Counts(column=names[0], weighing=weighing))
    return CountsQuestion(plan, (columns,), tuple(CAPS))


def counted(question: CountsQuestion, among: Records, caps: np.ndarray) -> dict[tuple[str, ...], float]:
    """Return the non-empty cells without noise, with their sums of weights."""
    answer = question.answer(WHOLE, None, people(caps), lambda: among, alone=True, draws=None)  # type: ignore[arg-type]
    release = question.release(WHOLE, None, [answer], NoNoise())  # type: ignore[arg-type]
    table = CountTable.released(question, release.arrays["sums"], LEVELS)
    return {cell.values: cell.weighted for cell in table if cell.weighted}


def test_cells_are_what_the_schema_declares() -> None:
    job, age, sick = columns_of(SCHEMA, ["job", "age", "sick"], 4)
    assert job.cells == ("nurse", "smith", "other", "not known")
    assert age.cells == ("0 – 25", "25 – 50", "50 – 75", "75 – 100", "not known")
    assert sick.cells == ("no", "yes")
    assert column_names(SCHEMA) == ["sick", "age", "job", "sex"]
    assert columns_of(ImageSchema(8, 8, 1, ("0", "1")), ["class"], 4)[0].cells == ("0", "1")
    assert len(columns_of(TabularSchema((CodeColumn("d", "icd10"),), ("a", "b")), ["d"], 4)[0].cells) > 10
    with pytest.raises(ValueError, match="height"):
        columns_of(SCHEMA, ["height"], 4)


def test_a_column_of_several_codes_is_counted_by_group() -> None:
    """Each group is counted as yes or no, because a person may have codes of several groups."""
    schema = TabularSchema((CodeColumn("d", "icd10", several=True), NumericColumn("age", 0, 9)), ("a", "b"))
    x = schema.encode([{"d": "I50;E11", "age": 3}, {"d": "I10", "age": 3}])
    among = Records(x, np.zeros(2, np.int64), np.arange(2))
    columns = columns_of(schema, ["d = circulatory", "d = endocrine, nutritional, metabolic", "age"], 4)
    assert [column.places(among).tolist() for column in columns[:2]] == [[0, 0], [0, 1]]
    assert columns[0].cells == ("recorded", "not recorded")
    assert column_names(schema) == ["class", *schema.feature_names[:22], "age"]


def test_every_record_is_in_the_cell_of_its_values() -> None:
    among = records(
        ("70", "nurse", "f", "no", 0),
        ("?", "pilot", "m", "yes", 1),
        ("300", "?", "f", "no", 2),
        ("0", "smith", "m", "no", 3),
    )
    caps = np.full(4, CAPS[-1])
    cells = dict.fromkeys(((cell,) for cell in ("70 – 80", "not known", "90 – 100", "0 – 10")), 1.0)
    assert counted(counts_question("age"), among, caps) == cells
    assert counted(counts_question("job", "sick"), among, caps) == {
        ("nurse", "no"): 1.0, ("other", "yes"): 1.0, ("not known", "no"): 1.0, ("smith", "no"): 1.0
    }  # fmt: skip


def test_an_edge_belongs_to_the_bin_above_it() -> None:
    for bins in (2, 3, 7, 10, 20, 50, 100):
        edges = np.linspace(0, 100, bins + 1)
        x = NumericColumn("age", 0, 100).encode([repr(edge) for edge in edges.tolist()])
        (column,) = columns_of(TabularSchema((NumericColumn("age", 0, 100),), ("a", "b")), ["age"], bins)
        places = column.places(Records(x, np.zeros(bins + 1, np.int64), np.arange(bins + 1)))
        assert places.tolist() == [*range(bins), bins - 1]


def test_a_person_with_many_records_counts_as_one_and_an_invalid_record_for_nothing() -> None:
    rows = [("5", "nurse", "f", "no", 0)] * 3 + [("15", "nurse", "f", "no", 0)] + [("5", "smith", "m", "no", 1)]
    caps = np.full(2, CAPS[-1])
    assert counted(counts_question("age"), records(*rows), caps) == {("0 – 10",): 1.75, ("10 – 20",): 0.25}
    among = records(("5", "nurse", "f", "no", 0), ("5", "nurse", "f", "no", 0), ("5", "nurse", "f", "no", 1))
    among.x[1] = np.nan
    bad = Records(among.x, np.array([0, 7, -3]), among.owner)
    assert counted(counts_question("age"), bad, caps) == {("0 – 10",): 1.5}
    assert counted(counts_question("sick"), bad, caps) == {("no",): 0.5}


def test_weights_depend_on_caps_or_are_equal() -> None:
    among = records(*(("5", "nurse", "f", "no", owner) for owner in range(3)))
    assert counted(counts_question("sick"), among, CAPS)[("no",)] == pytest.approx(0.25 + 0.5 + 1.0, abs=1e-3)
    assert counted(counts_question("sick", weighing="alike"), among, CAPS)[("no",)] == 3.0


@pytest.mark.parametrize("weighing", ["promise", "alike"])
def test_nobody_adds_or_pays_more_than_their_bound(weighing: str) -> None:
    rng = np.random.default_rng(0)
    owner = np.sort(rng.integers(0, 300, 2000))
    ages, sexes = rng.integers(0, 100, 2000), rng.integers(0, 2, 2000)
    among = records(
        *((str(age), "nurse", "fm"[sex], "no", who) for age, sex, who in zip(ages, sexes, owner, strict=True))
    )
    question, caps = counts_question("age", "sex", share=0.5, weighing=weighing), CAPS[np.arange(300) % 3]
    everybody, charge = question.contributions(people(caps), among)
    bounds = np.array(question.bounds(WHOLE))
    assert (charge <= bounds[np.arange(300) % 3]).all() and (bounds <= 0.5 * CAPS).all()
    for who in range(0, 300, 7):
        mine = among.owner == who
        rest = Records(among.x[~mine], among.classes[~mine], among.owner[~mine])
        without, others = question.contributions(people(caps), rest)
        vector = (everybody - without) / PERSON
        # A person's contribution depends only on them, and its squared norm is exactly what is charged.
        assert (vector**2).sum() / question.sigma**2 == pytest.approx(charge[who], rel=1e-12, abs=1e-18)
        assert np.array_equal(np.delete(charge, who), np.delete(others, who))


def test_rounding_to_whole_numbers_never_exceeds_what_a_cap_allows() -> None:
    """In exact fractions, for caps whose weights are between two whole numbers, and records divided in every way."""
    columns = columns_of(TabularSchema((NumericColumn("n", 0, 1),), ("a", "b")), ["n"], 4)
    reference, share = 0.16, 0.3
    few = [reference * (number / PERSON) ** 2 for number in (0.6, 1.5, 2.51, 3.7, 9.99)]
    caps = np.array([*few, *np.random.default_rng(0).uniform(0, reference, 40), reference])
    everyone = [PlannedLevel("ALL", reference, 1.0)]
    plan = table_plan.plan_counts(everyone, cells=4, share=share, counts=Counts(column="n"))
    divisions = [0], [0, 1], [0, 1, 2], [0, 0, 1], [0, 0, 1, 2, 3], [0] * 5 + [1] * 3 + [2], [0] * 10_000 + [1]
    for tables in (1, 3):
        # noise for the norm of several tables, as in a round of synthetic rows
        question = CountsQuestion(replace(plan, sigma=plan.sigma * tables**0.5), (columns,) * tables, tuple(caps))
        bounds = question.bounds(WHOLE)
        for divided in divisions:
            x = np.array(divided, np.float32)[:, None] / 4 + 0.1
            among = Records(x, np.zeros(len(x), np.int64), np.zeros(len(x), np.int64))
            for cap, bound in zip(caps, bounds, strict=True):
                sums, charge = question.contributions(people(np.array([cap])), among)
                norm = Fraction(sum(number**2 for number in sums.tolist()), PERSON**2) / Fraction(question.sigma) ** 2
                assert norm <= Fraction(share) * Fraction(cap), (tables, divided, cap)
                assert float(norm) == pytest.approx(charge[0], rel=1e-12) and charge[0] <= bound * (1 + 1e-12)
    assert norm > Fraction(reference * share) * Fraction(99, 100), "people who count as one use the whole share"


def test_an_account_without_room_contributes_nothing() -> None:
    among, caps = records(("5", "nurse", "f", "no", 0), ("5", "nurse", "f", "no", 1)), np.full(2, CAPS[-1])
    short = People(np.arange(2), caps, caps, np.array([0.0, 0.9 * CAPS[-1]]))
    sums, charge = counts_question("sick").contributions(short, among)
    assert sums.tolist() == [PERSON, 0] and charge[1] == 0


@pytest.mark.statistical
def test_intervals_hold_95_times_in_100() -> None:
    draws = 2000
    among = records(*(("5", "nurse", "f", ("no", "yes")[owner % 2], owner) for owner in range(60)))
    caps, question = CAPS[np.arange(60) % 3], counts_question("sick")
    sums = question.contributions(people(caps), among)[0]
    exact, noisy = sums / PERSON, sums + SimulationNoise(3).rounded_normal(question.sigma * PERSON, (draws, 2))
    inside = [
        [cell.low <= question.plan.scale * right <= cell.high for cell, right in zip(cells, exact, strict=True)]
        for cells in (CountTable.released(question, each, LEVELS) for each in noisy)
    ]
    assert np.abs(np.mean(inside, axis=0) - 0.95).max() < 4 * np.sqrt(0.95 * 0.05 / draws)


def test_numbers_of_people_are_right_if_levels_are_spread_evenly() -> None:
    # 90 people, a third at each level, and two thirds of each well: the estimate is 60 and 30.
    rows = [("5", "nurse", "f", ("no", "no", "yes")[owner // 3 % 3], owner) for owner in range(90)]
    caps = CAPS[np.arange(90) % 3]
    for weighing in ("promise", "alike"):
        question = counts_question("sick", weighing=weighing)
        sums, _charge = question.contributions(people(caps), records(*rows))
        cells = list(CountTable.released(question, sums, LEVELS))
        assert [cell.count for cell in cells] == pytest.approx([60, 30], rel=1e-3)


def test_the_wide_interval_ends_where_everybody_has_the_largest_or_the_smallest_weight() -> None:
    question = counts_question("sick")
    (lightest, *_between, heaviest), around = question.plan.weights(CAPS), 1.959964 * question.sigma
    sums = np.rint(np.array([500.0, -500.0]) * PERSON).astype(np.int64)
    many, none = CountTable.released(question, sums, LEVELS)
    assert (many.least, many.most) == pytest.approx(((500 - around) / heaviest, (500 + around) / lightest), rel=1e-3)
    assert (none.least, none.most) == pytest.approx(((-500 - around) / lightest, (-500 + around) / heaviest), rel=1e-3)
    assert many.least < many.low < many.count < many.high < many.most


def test_a_table_says_whom_it_is_about() -> None:
    question = counts_question("sick")
    levels = [PlannedLevel("HIGH", CAPS[0], 60.0), PlannedLevel("LOW", CAPS[2], 40.0)]
    (high, low) = CountTable.released(question, np.zeros(2, np.int64), levels).parts
    assert (high[0].name, high[0].weight, high[1]) == ("HIGH", pytest.approx(0.25, abs=1e-3), 0.6)
    assert high[2] == pytest.approx(15 / 55, abs=1e-3) and low[1:] == (0.4, pytest.approx(40 / 55, abs=1e-3))
    alike = list(CountTable.released(counts_question("sick", weighing="alike"), np.array([9, 0]) * PERSON, LEVELS))
    assert all(cell.least == pytest.approx(cell.low) for cell in alike)
    assert all(cell.most == pytest.approx(cell.high) for cell in alike)

    # A cell counts as occupied if noise alone would rarely produce such a large sum.
    error = 1.959964 * question.sigma
    sums = np.rint(np.array([error * 0.99, error * 1.01]) * PERSON).astype(np.int64)
    assert [cell.is_distinct for cell in CountTable.released(question, sums, LEVELS)] == [False, True]


def test_a_table_and_a_plan_survive_their_documents() -> None:
    question = counts_question("job", "sick")
    table = CountTable.released(question, np.arange(8) * PERSON // 3, LEVELS)
    assert CountTable.from_json(table.to_json()) == table
    assert table_plan.CountsPlan.from_json(question.plan.to_json()) == question.plan
    other = counts_question("job", "sick", share=0.5)
    assert question.digest() == counts_question("job", "sick").digest() != other.digest()
    edges = ((), (-5.0, 0.0))
    table = CountTable(("=c", "age"), (("=cmd()",), ("-5 – 0",)), (1.0,), 1.0, 1.0, edges, ())
    heading, line = table.to_csv().splitlines()
    assert heading.startswith("'=c,age,people") and line.startswith("'=cmd(),-5 – 0,1.0"), "no formula in a file"


def test_a_plan_warns_of_too_few_people_for_the_noise() -> None:
    few = table_plan.plan_counts([PlannedLevel("HIGH", 0.01, 20.0)], cells=50, share=0.1, counts=Counts(column="age"))
    assert any("most cells" in str(note.template) for note in table_plan.plan_notes(few))
    many = table_plan.plan_counts([PlannedLevel("HIGH", 0.01, 1e6)], cells=50, share=0.1, counts=Counts(column="age"))
    assert len(table_plan.plan_notes(many)) == 1
    with pytest.raises(ValueError, match="cells"):
        table_plan.plan_counts([PlannedLevel("HIGH", 0.01, 20.0)], cells=10_001, share=0.1, counts=Counts(column="age"))
    with pytest.raises(ValueError, match="larger share"):
        table_plan.plan_counts([PlannedLevel("HIGH", 1e-6, 20.0)], cells=2, share=0.01, counts=Counts(column="age"))


@pytest.mark.statistical
def test_the_forecast_of_a_table_matches_the_effect_of_noise() -> None:
    """The noise is drawn 2,000 times: the mean distance matches, and 95 in 100 distances are within the interval."""
    plan = table_plan.CountsPlan(8.0, 0.16, 900.0, 600.0, 20)
    forecast = table_plan.forecast_table(plan)
    noise = np.random.default_rng(0).normal(scale=plan.sigma, size=(2000, plan.cells))
    distances = np.abs(noise).sum(axis=1) / 2 / plan.weight
    assert forecast.value == pytest.approx(distances.mean(), rel=0.01)
    assert 0.93 < ((forecast.low <= distances) & (distances <= forecast.high)).mean() < 0.97
    assert table_plan.forecast_table(table_plan.CountsPlan(4000.0, 0.16, 9.0, 6.0, 20)).high == 1.0


EDGES = np.linspace(20, 120, 11)


def table(sums: np.ndarray, *, groups: tuple[str, ...] = (), missing: bool = False, sigma: float = 1.0) -> CountTable:
    bins = [f"{low:g} – {high:g}" for low, high in pairwise(EDGES.tolist())]
    ages = (*bins, *(["not known"] if missing else []))
    of_ages = ("age", ages, tuple(EDGES.tolist()))
    columns, values, edges = zip(*([("sex", groups, ()), of_ages] if groups else [of_ages]), strict=True)
    return CountTable(columns, values, tuple(sums.ravel().tolist()), sigma, 1.0, edges, ())


def test_without_noise_summaries_are_those_of_each_groups_people_with_known_values() -> None:
    sums = np.array([0, 0, 10, 20, 40, 20, 10, 0, 0, 0])
    (summary,) = summaries(table(sums, sigma=1e-9))
    assert (summary.column, summary.group) == ("age", "")
    assert summary.mean is not None and summary.mean.value == pytest.approx(65)
    assert (summary.mean.low, summary.mean.high) == pytest.approx((60, 70)), "half a bin on both sides"
    assert summary.quantiles[1].value == pytest.approx(65)
    assert [(each.low, each.high) for each in summary.quantiles] == [(50, 60), (60, 70), (70, 80)]

    young, old = np.zeros(11), np.zeros(11)
    young[1], young[10], old[8] = 50, 1e6, 30
    summary = summaries(table(np.array([young, old]), groups=("f", "m"), missing=True, sigma=1e-9))
    means = [(each.group, each.mean.value) for each in summary if each.mean]
    assert means == [("f", pytest.approx(35)), ("m", pytest.approx(105))]
    assert summaries(CountTable(("sex",), (("f", "m"),), (1.0, 2.0), 1.0, 1.0, ((),), ())) == []


def test_the_interval_of_a_mean_is_what_the_tests_leave() -> None:
    rng = np.random.default_rng(0)
    middles, half = (EDGES[:-1] + EDGES[1:]) / 2, 5.0
    for sigma in (1.0, 3.0, 8.0):
        sums = rng.integers(0, 40, 10) + sigma * rng.standard_normal(10)
        summary = mean(EDGES, sums, np.full(10, sigma**2))
        assert summary is not None
        grid = np.linspace(-100, 300, 40_001)
        left = grid[
            np.abs(sums @ middles - grid * sums.sum())
            <= table_plan.WITHIN_95 * sigma * np.sqrt(((middles[:, None] - grid) ** 2).sum(axis=0))
        ]
        ends = np.clip([left[0] - half, left[-1] + half], 20, 120)
        assert (summary.low, summary.high) == pytest.approx(tuple(ends), abs=2e-2)
        assert summary.low <= summary.value <= summary.high


def test_an_empty_count_has_no_mean() -> None:
    assert mean(EDGES, np.full(10, 0.1), np.full(10, 25.0)) is None
    assert mean(EDGES, np.full(10, -40.0), np.ones(10)) is None
    for message in quantiles(EDGES, np.full(10, -0.1), np.full(10, 25.0)):
        assert (message.low, message.high) == (20, 120) and 20 <= message.value <= 120


@pytest.mark.statistical
@pytest.mark.parametrize("sigma", [2.0, 15.0, 60.0])
def test_intervals_of_means_and_quantiles_hold_95_times_in_100_or_more(sigma: float) -> None:
    """People's numbers are spread within their bins, so no midpoint is exact."""
    rng, draws = np.random.default_rng(1), 1000
    people = np.clip(20 + 100 * rng.beta(2, 4, 600), 20, 119.9)
    counts = np.histogram(people, EDGES)[0]
    true = [people.mean(), *(np.sort(people)[int(share * 600)] for share in QUANTILES)]
    held = np.zeros(4)
    for _draw in range(draws):
        noisy = counts + sigma * rng.standard_normal(10)
        summary = summaries(table(noisy, sigma=sigma))[0]
        intervals = [summary.mean, *summary.quantiles]
        held += [each is None or each.low <= value <= each.high for each, value in zip(intervals, true, strict=True)]
    assert (held / draws > 0.95 - 4 * np.sqrt(0.95 * 0.05 / draws)).all(), held / draws
