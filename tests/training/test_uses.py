"""What a holder reads about the runs that their records were part of."""

import json

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from accounting.models import HolderSpending
from accounting.privacy import epsilon_from_rdp, gaussian_rdp
from consent import services
from consent.models import DataHolder, Study
from consent.uses import usage_of
from tests.factories import user_create
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, study_with_table
from training.models import Run

pytestmark = pytest.mark.django_db


def holder_at(study: Study, level: str) -> DataHolder:
    return DataHolder.objects.filter(consent_events__level=level, study=study).earliest("pk")


def finish(study: Study, **fields: object) -> Run:
    return run_finish(run_start(study, **{**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 40.0}, **fields}))


def test_nothing_was_used_before_the_first_vote() -> None:
    study = study_with_table()
    run_draft(study, **TABLE_RUN)
    usage = usage_of(holder_at(study, "HIGH"))
    assert (usage.uses, usage.epsilon) == ([], 0.0)


def test_runs_are_told_newest_first_and_their_bounds_add_up() -> None:
    study = study_with_table(levels="A")
    fields = {"variant": Run.Variant.STANDARD, "wanted_labels": 4}
    holder = holder_at(study, "AVERAGE")
    finish(study, title="First", **fields)
    once = usage_of(holder).epsilon
    finish(study, title="Second", **fields)
    usage = usage_of(holder)
    assert [use.title for use in usage.uses] == ["Second", "First"]
    assert all("a model has learned" in use.state for use in usage.uses)
    # A vote moves two counts by one each: a Gaussian mechanism of sensitivity √2, four queries in each of two runs.
    orders = np.asarray(HolderSpending.objects.get(holder=holder).history.group.account.orders)
    query = gaussian_rdp(40.0, np.sqrt(2), orders)
    assert once == pytest.approx(epsilon_from_rdp(4 * query, study.delta, orders)[0], rel=1e-6)
    assert usage.epsilon == pytest.approx(epsilon_from_rdp(8 * query, study.delta, orders)[0], rel=1e-6)


def test_who_did_not_take_part_reads_of_nothing() -> None:
    study = study_with_table(levels="HA-")
    finish(study)
    outside = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    assert usage_of(outside).uses == []


def test_what_is_told_never_exceeds_the_budget_nor_rests_on_secret_costs() -> None:
    study = study_with_table()
    run = finish(study, aggregator={"name": "gnmax", "sigma": 10.0}, method=Run.Method.EXACT)
    for level in ("HIGH", "AVERAGE", "LOW"):
        holder = holder_at(study, level)
        group = HolderSpending.objects.get(holder=holder).history.group
        bound = epsilon_from_rdp(group.published_rdp, study.delta, np.asarray(run.account.orders))[0]
        assert usage_of(holder).epsilon == pytest.approx(min(bound, group.epsilon))


def test_the_page_says_it_in_odds_and_the_export_holds_ones_own_records_alone() -> None:
    study = study_with_table(records=2)
    holder = holder_at(study, "HIGH")
    services.holder_link(holder=holder, user=user_create("hanna"))
    finish(study, title="Reading", purpose="To read.")
    client = Client()
    client.force_login(holder.user)
    page = client.get(reverse("consent:uses", args=[study.slug])).content.decode()
    assert "Reading" in page
    assert "it will never be more than 74 times in 100" in page
    assert "ε" not in page
    data = json.loads(client.get(reverse("consent:export", args=[study.slug])).content)
    assert data["holder"]["pseudonym"] == holder.pseudonym
    assert [use["title"] for use in data["uses"]] == ["Reading"]
    assert [len(own["records"]) for own in data["records"].values()] == [2]
    others = DataHolder.objects.filter(study=study).exclude(pk=holder.pk).values_list("pseudonym", flat=True)
    assert not any(f'"{name}"' in json.dumps(data) for name in others)


def test_odds_that_what_was_released_exceeds_are_said_to_be_for_the_future() -> None:
    study = study_with_table()
    holder = holder_at(study, "LOW")
    services.holder_link(holder=holder, user=user_create("hanna"))
    finish(study, aggregator={"name": "gnmax", "sigma": 10.0})
    so_far = usage_of(holder).right_guesses
    assert 74 < so_far <= 96
    told = f"What was released before already allows up to {so_far} right guesses in 100"
    client = Client()
    client.force_login(holder.user)
    versions = {"form_version": 1, "policy_version": 1}

    def says(page: str, answer: str = "") -> int:
        path = reverse(f"consent:{page}", args=[study.slug])
        response = client.post(path, {**versions, "choice": answer}) if answer else client.get(path)
        return " ".join(response.text.split()).count(told)

    assert says("study") == 1
    assert (says("study", "NONE"), says("study", "HIGH"), says("study", "LOW")) == (1, 1, 0)
    assert says("choice") == 0, "low protection limits all that is ever released"
    client.post(reverse("consent:decide", args=[study.slug]), {**versions, "choice": "HIGH"})
    assert says("choice") == 1
