"""Synthetic rows, without a database: contributions and charges, the tree, the model, the rows and their file."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from common.noise import SimulationNoise
from learning.formats import TabularSchema
from learning.formats.columns import CategoricalColumn, CodeColumn, LabelColumn, NumericColumn
from learning.formats.read import read_file
from learning.mechanisms.counts.table_plan import CountedColumn, feature_columns
from learning.mechanisms.counts.tables import PERSON
from learning.mechanisms.protocol import People, PlannedLevel, Records
from learning.mechanisms.synthesis import rounds
from learning.mechanisms.synthesis.model import fitted, grouped, in_groups, pairs_of, shrunk, strength, strongest_tree
from learning.mechanisms.synthesis.rounds import ROUNDS, Description, Marginals, SyntheticRows, rows_draw, uniform_rows
from tests.draws import NoNoise

SCHEMA = TabularSchema(
    (
        NumericColumn("age", 0, 100, missing=("?",)),
        CategoricalColumn("job", ("nurse", "smith", "cook"), missing=("?",)),
        CategoricalColumn("sex", ("f", "m")),
        NumericColumn("pay", 10, 20),
        LabelColumn("sick"),
    ),
    ("no", "yes"),
)
CAPS = (0.01, 0.04, 0.16)
WHOLE = slice(0, 1)


def people_of(number: int, caps: tuple[float, ...] = CAPS) -> People:
    own = np.array(caps)[np.arange(number) % len(caps)]
    return People(np.arange(number), own, own, np.zeros(number))


def records_of(number: int, each: int = 1) -> Records:
    """Return records in which work depends on sex and class, pay on work, and age on the class."""
    rng = np.random.default_rng(0)
    size = number * each
    sick, sex = rng.integers(0, 2, size), rng.integers(0, 2, size)
    job = np.where(rng.random(size) < 0.8, (sick + 2 * sex) % 3, rng.integers(0, 3, size))
    pay = 10 + 3 * job + rng.random(size)
    age = np.where(rng.random(size) < 0.1, -1.0, 20 + 40 * sick + 20 * rng.random(size))
    rows = [
        {"age": "?" if a < 0 else a, "job": ("nurse", "smith", "cook")[j], "sex": "fm"[s], "pay": p}
        for a, j, s, p in zip(age, job, sex, pay, strict=True)
    ]
    return Records(SCHEMA.encode(rows), sick, np.repeat(np.arange(number), each))


def marginals_of(records: Records, people: People, *, share: float = 1.0, rows: int = 2000, noise=None) -> Marginals:
    levels = [PlannedLevel(f"L{place}", cap, 100.0) for place, cap in enumerate(CAPS)]
    plan = rounds.plan_synthesis(levels, columns=4, share=share, rows=rows, bins=20)
    marginals = Marginals(SCHEMA, plan, CAPS)
    for index in range(ROUNDS):
        question = marginals.question(index)
        answer = question.answer(WHOLE, None, people, lambda: records, alone=True, draws=None)  # type: ignore[arg-type]
        marginals = marginals.after(question.release(WHOLE, None, [answer], noise or NoNoise()).arrays["sums"])
    return marginals


def test_rounds_use_the_share_of_the_largest_promise_and_less_of_every_other() -> None:
    levels = [PlannedLevel(f"L{place}", cap, 100.0) for place, cap in enumerate(CAPS)]
    plan = rounds.plan_synthesis(levels, columns=4, share=0.5, rows=None, bins=20)
    marginals = marginals_of(records_of(60), people_of(60), share=0.5)
    bounds = np.array([marginals.question(index).bounds(WHOLE) for index in range(ROUNDS)])
    assert (bounds.sum(axis=0) <= 0.5 * np.array(CAPS)).all()
    np.testing.assert_allclose(bounds, np.outer(rounds.SHARES, 0.5 * np.array(CAPS)), rtol=1e-6)
    assert rounds.synthesis_plan_from_json(plan.to_json()) == plan and plan.rows == 300
    assert [each["until"] for each in plan.to_json()] == [0.1, 0.25, 1.0]


@pytest.mark.parametrize("each", [1, 3])
def test_nobody_adds_more_than_they_are_charged_in_any_round(each: int) -> None:
    records, people = records_of(60, each), people_of(60)
    marginals = marginals_of(records, people)
    total = np.zeros(60)
    for index in range(ROUNDS):
        question = marginals.question(index)
        everybody, charge = question.contributions(people, records)
        total += charge
        for who in range(0, 60, 7):
            mine = records.owner == who
            rest = Records(records.x[~mine], records.classes[~mine], records.owner[~mine])
            without, others = question.contributions(people, rest)
            vector = (everybody - without) / PERSON
            assert (vector**2).sum() / question.sigma**2 == pytest.approx(charge[who], rel=1e-12)
            assert np.array_equal(np.delete(charge, who), np.delete(others, who))
        for table, columns in zip(question.of_tables(everybody), question.tables, strict=True):
            assert table.shape == tuple(column.size for column in columns)
            assert table.sum() / PERSON == pytest.approx(question.plan.weights(people.caps).sum(), rel=1e-3)
    assert (total <= people.caps).all()


def test_the_tables_of_a_round_depend_only_on_releases_and_bad_records_are_harmless() -> None:
    records = records_of(30)
    records.x[3] = np.nan
    bad = Records(records.x, np.where(np.arange(30) == 5, 9, records.classes), records.owner)
    marginals = marginals_of(bad, people_of(30), rows=100, noise=SimulationNoise(1))
    again = Marginals(SCHEMA, marginals.plan, CAPS, marginals.released)
    for index in range(ROUNDS):
        assert again.question(index).digest() == marginals.question(index).digest()
    assert len(rows := rows_draw(again)) == 100 and rows.to_csv() == rows_draw(marginals).to_csv()


def test_the_strongest_tree_is_the_strongest_of_all_trees() -> None:
    def is_tree(edges: list[tuple[int, int]]) -> bool:
        reached = {0}
        for _ in range(4):
            reached |= {b for a, b in edges if a in reached} | {a for a, b in edges if b in reached}
        return len(reached) == 5

    rng, pairs = np.random.default_rng(0), pairs_of(5)
    trees = [chosen for chosen in combinations(range(len(pairs)), 4) if is_tree([pairs[place] for place in chosen])]
    for _ in range(20):
        weights = rng.normal(0, 1, len(pairs))
        edges = strongest_tree(5, weights.tolist())
        assert edges[0][0] == -1
        seen = {edges[0][1]}
        for parent, child in edges[1:]:
            assert parent in seen and child not in seen
            seen.add(child)
        found = sum(weights[pairs.index((min(edge), max(edge)))] for edge in edges[1:])
        assert found == pytest.approx(max(sum(weights[list(chosen)]) for chosen in trees))


def test_only_dependence_and_not_noise_gives_strength() -> None:
    rng, independent = np.random.default_rng(0), np.full((2, 4, 4), 200.0)
    drawn = [strength(independent + rng.normal(0, 10, independent.shape), 10.0) for _ in range(2000)]
    assert abs(np.mean(drawn)) < 4 * np.std(drawn) / np.sqrt(2000)
    dependent = independent + 100 * np.where(np.eye(4), 1.0, -1 / 3)
    assert strength(dependent + rng.normal(0, 10, independent.shape), 10.0) > 6 * np.std(drawn)


def test_groups_hold_enough_and_keep_their_order() -> None:
    column = CountedColumn("n", tuple("abcdefgh"), edges=tuple(range(8)))
    counts = np.array([50.0, 1, 2, 3, 40, 0, 9, 7])
    found = grouped(column, counts, 6.0)
    assert found.groups == (0, 1, 1, 1, 2, 3, 3, 4)[:8] and found.size == 5  # the last cell is “not known”
    assert in_groups(counts, found).tolist() == [50, 6, 40, 9, 7]
    jobs = grouped(CountedColumn("job", ("a", "b", "c", "d"), width=4), np.array([9.0, 1.0, 8.0, 2.0]), 5.0)
    assert jobs.groups == (0, 2, 1, 2)


def test_shrinking_comes_closer_than_noisy_and_than_expected_counts() -> None:
    rng, expected = np.random.default_rng(0), np.full(400, 50.0)
    true = expected + rng.normal(0, 10, 400)
    noisy = true + rng.normal(0, 10, 400)
    found = shrunk(noisy, expected, 100.0)
    errors = [float(((each - true) ** 2).mean()) for each in (found, noisy, expected)]
    # With equal variances of the prior and the noise, the posterior mean is halfway.
    assert errors[0] == pytest.approx(50, rel=0.2) and errors[0] < min(errors[1:]) * 0.7
    assert np.allclose(shrunk(true, expected, 1e-9), true)
    assert np.array_equal(shrunk(expected, expected, 1.0), expected)


def test_a_fitted_table_has_the_margins_and_the_odds_ratios() -> None:
    table = np.array([[10.0, 20.0, 5.0], [4.0, 4.0, 30.0]])
    rows, columns = np.array([40.0, 60.0]), np.array([50.0, 20.0, 30.0])
    found = fitted(table, rows, columns)
    np.testing.assert_allclose(found.sum(axis=1), rows, rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=0), columns, rtol=1e-4)
    odds = [each[0, 0] * each[1, 1] / (each[0, 1] * each[1, 0]) for each in (table, found)]
    assert odds[0] == pytest.approx(odds[1], rel=1e-3)
    assert not fitted(table, np.zeros(2), np.zeros(3)).any()


def test_without_noise_rows_have_the_distributions_of_the_records() -> None:
    records = records_of(4000)
    people = people_of(4000, (CAPS[-1],))
    marginals = marginals_of(records, people, rows=20_000)
    rows = rows_draw(marginals)
    assert frozenset((1, 3)) in set(map(frozenset, marginals.edges))
    assert rows.classes.mean() == pytest.approx(records.classes.mean(), abs=0.02)
    job, real_job = (each[:, 2:5].argmax(axis=1) for each in (rows.x, records.x))
    sex, real_sex = (each[:, 5:7].argmax(axis=1) for each in (rows.x, records.x))
    for sick in (0, 1):
        for who in (0, 1):
            mine, real = (rows.classes == sick) & (sex == who), (records.classes == sick) & (real_sex == who)
            for work in range(3):
                assert (job[mine] == work).mean() == pytest.approx((real_job[real] == work).mean(), abs=0.06)
    assert np.corrcoef(job, rows.x[:, 7])[0, 1] == pytest.approx(np.corrcoef(real_job, records.x[:, 7])[0, 1], abs=0.05)
    assert rows.x[:, 1].mean() == pytest.approx(records.x[:, 1].mean(), abs=0.02)  # how often age is not known
    assert rows.description.pairs < 0.1


def test_drawn_rows_are_read_back_as_records_of_the_schema(tmp_path: Path) -> None:
    rows = rows_draw(marginals_of(records_of(300), people_of(300), rows=500, noise=SimulationNoise(0)))
    path = tmp_path / "rows.csv"
    path.write_text(rows.to_csv())
    found = read_file(path, SCHEMA, holders=False)
    np.testing.assert_allclose(found.x, rows.x, atol=1e-5)
    assert np.array_equal(found.y, rows.classes)
    described = rows.description
    assert len(described.marginals) == 4 and described.columns[-1] == "sick" and len(described) == 500
    assert all(0 <= each.distance <= 1 for each in rows.description.marginals)


def test_a_file_has_no_formula_and_names_all_groups_of_several_codes() -> None:
    schema = TabularSchema((CategoricalColumn("=a", ("=cmd()", "-")), NumericColumn("age", -9, 9)), ("no", "yes"))
    x = schema.encode([{"=a": "=cmd()", "age": -9}, {"=a": "-", "age": 9}])
    rows = SyntheticRows(schema, x, np.array([1, 0]), Description((*schema.feature_names, "class"), 2, (), 0.0, 0.0))
    assert rows.to_csv().split() == ["'=a,age,class", "'=cmd(),-9,yes", "-,9,no"]
    columns = (CodeColumn("d", "icd10", ("",), several=True), NumericColumn("age", 0, 9))
    schema = TabularSchema(columns, ("no", "yes"))
    names = tuple(column.name for column in feature_columns(schema, 4))
    assert names == schema.feature_names and uniform_rows(schema, 50).shape == (50, 23)
    x = schema.encode([{"d": "I50;C50", "age": 9}, {"d": "", "age": 0}])
    rows = SyntheticRows(schema, x, np.array([1, 0]), Description((*names, "class"), 2, (), 0.0, 0.0))
    assert rows.to_csv().split() == ["d,age,class", "neoplasms;circulatory,9,yes", ",0,no"]


def test_a_plan_says_what_noise_leaves_and_refuses_what_cannot_be_drawn() -> None:
    few = rounds.plan_synthesis([PlannedLevel("HIGH", 0.01, 20.0)], columns=4, share=0.1, rows=None, bins=20)
    assert any("too few people" in str(note.template) for note in rounds.plan_notes(few)) and few.rows == 100
    many = rounds.plan_synthesis([PlannedLevel("HIGH", 0.01, 1e6)], columns=4, share=0.1, rows=None, bins=20)
    assert len(rounds.plan_notes(many)) == 1
    for columns, cap, message in ((1, 0.01, "columns"), (101, 0.01, "columns"), (50, 1e-6, "larger share")):
        with pytest.raises(ValueError, match=message):
            rounds.plan_synthesis([PlannedLevel("HIGH", cap, 20.0)], columns=columns, share=0.1, rows=None, bins=20)


def test_noise_adds_no_more_to_the_distance_of_pairs_than_was_forecast() -> None:
    number = 1500
    records, people = records_of(number), people_of(number)
    levels = [PlannedLevel(f"L{place}", cap, number / len(CAPS)) for place, cap in enumerate(CAPS)]
    plan = rounds.plan_synthesis(levels, columns=4, share=1.0, rows=2000, bins=20)
    for seed in range(2):
        marginals = marginals_of(records, people, noise=SimulationNoise(seed))
        forecast = rounds.forecast_rows(plan, [column.size for column in marginals.columns], 2)
        said = rows_draw(marginals).description
        assert forecast.value is None and forecast.low == 0.0 < said.noise <= forecast.high < 0.5
        assert forecast.high < 4 * said.noise, "the error message is not empty"
