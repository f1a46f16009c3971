"""Tests of the template filters for runs."""

import json

import pytest
from django.utils import translation

from common.sentences import Sentence
from ipate_web.staff.templatetags.run_words import chosen_words, group_label, parameter_words, percent, said, trimmed


@pytest.mark.parametrize(
    ("share", "said"), [(0.8579, "85.8 %"), (0.9999, "100.0 %"), (0.25, "25.0 %"), (0.0, "0.0 %"), (None, "–")]
)
def test_shares_are_rounded_not_cut_off(share: float | None, said: str) -> None:
    assert percent(share) == said


@pytest.mark.parametrize(("number", "said"), [(0.5, "0.5"), (200.0, "200"), (1.06182, "1.062")])
def test_numbers_lose_the_zeros_that_say_nothing(number: float, said: str) -> None:
    assert trimmed(number) == said


def test_parameters_of_a_learner_are_translated() -> None:
    parameters = {"inverse_penalty": 0.5, "iterations": 200, "balanced": True}
    result = parameter_words(parameters, "logistic_regression")
    assert "balanced" not in result.split(": ")[0]
    assert result.endswith(": yes")
    assert ": 0.5, " in result and ": 200, " in result
    with translation.override("de"):
        assert parameter_words(parameters, "logistic_regression").endswith(": ja")
        assert ": 0,5, " in parameter_words(parameters, "logistic_regression")
    assert parameter_words({"depth": 3}, "of_old") == "depth: 3"


def test_groups_are_called_by_their_levels() -> None:
    assert [group_label(name) for name in ("HIGH", "LOW 2", "other")] == [
        "High protection",
        "Low protection 2",
        "other",
    ]
    with translation.override("de"):
        assert group_label("LOW 2") == "Niedriger Schutz 2"


def test_stored_sentences_are_translated_for_the_reader() -> None:
    note = Sentence("Group %(group)s has no holders.", group="HIGH")
    stored = json.loads(json.dumps(note.to_json()))
    assert note == "Group HIGH has no holders."
    assert said(note) == said(stored) == "Group High protection has no holders."
    with translation.override("de"):
        assert said(note) == said(stored) == "Gruppe „Hoher Schutz“ hat keine Betroffenen."


def test_numbers_in_a_sentence_have_the_readers_decimal_separator() -> None:
    note = Sentence(
        "σ = %(sigma)g is large for %(votes)d votes: even a unanimous vote is often lost to the noise.",
        sigma=0.5,
        votes=30,
    )
    assert said(note) == note
    with translation.override("de"):
        assert said(note).startswith("σ = 0,5 ")


def test_text_without_german_is_marked_as_english() -> None:
    unknown = Sentence("<%(count)d> of some kind", count=3)
    assert said(unknown) == "<3> of some kind"
    with translation.override("de"):
        assert said(unknown) == '<span lang="en">&lt;3&gt; of some kind</span>'
        assert said("Cancelled by olga.") == '<span lang="en">Cancelled by olga.</span>'


def test_chosen_parameters_of_a_student_have_words() -> None:
    assert chosen_words({"penalty": 1e-4, "depth": 3.0}) == "ridge penalty: 0.0001, depth: 3"
    with translation.override("de"):
        assert chosen_words({"penalty": 0.5}) == "Ridge-Strafterm: 0,5"
