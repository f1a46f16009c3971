"""Uses of a holder's records, as the holder reads them."""

import re
from datetime import date
from typing import Any

import numpy as np
import pytest
from django.urls import reverse

from accounting.book import balances, charges_of
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import shares
from common.noise import SimulationNoise
from consent import services
from consent.models import ConsentForm, DataHolder, Study
from consent.services import holder_link
from consent.services.handover import circumstance_record
from consent.uses import Usage, right_guesses_together, usage_of
from tests.factories import user_create
from tests.pages import as_, text
from tests.training.asking import ASKING_RUN, EVERYBODY, run_ask
from tests.training.runs import TABLE_RUN, run_draft, run_finish, run_start, run_teach, study_with_table
from training.models import Run
from training.services.head_counts import head_counts_draw

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def holder_at(study: Study, level: str) -> DataHolder:
    return DataHolder.objects.filter(consent_events__level=level, study=study).earliest("pk")


def so_far(usage: Usage) -> float:
    """Most that they can have spent, in μ²."""
    return usage.mu_squared


def finish(study: Study, **fields: object) -> Run:
    return run_finish(run_start(study, **{**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 40.0}, **fields}))


def test_nothing_was_used_before_the_first_vote() -> None:
    study = study_with_table()
    run_draft(study, **TABLE_RUN)
    usage = usage_of(holder_at(study, "HIGH"))
    assert (usage.uses, so_far(usage)) == ([], 0.0)


def test_head_counts_are_told_where_no_run_has_asked_yet() -> None:
    """They cost everybody a little, and the page of a choice says so, too."""
    study = study_with_table()
    holder = holder_at(study, "HIGH")
    holder_link(holder=holder, user=user_create("hanna"))
    uses = reverse("consent:uses", args=[study.slug])
    assert "Your protection so far" not in as_("hanna").get(uses).text
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(1))
    page = text(as_("hanna").get(uses))
    assert "nothing that was released has learned from your records" in page
    assert f"at most {usage_of(holder).right_guesses} times in 100 instead of 50" in page
    assert "for example how many people take part" in page


def test_uses_list_runs_newest_first_with_shares_that_add_up() -> None:
    study = study_with_table(levels="A")
    fields = {"variant": Run.Variant.STANDARD, "wanted_labels": 4, "share": 0.5}
    holder = holder_at(study, "AVERAGE")
    finish(study, purpose="First", **fields)
    once = usage_of(holder)
    finish(study, purpose="Second", **fields)
    twice = usage_of(holder)
    assert [use.purpose for use in twice.uses] == ["Second", "First"]
    assert all("a model has learned" in use.state for use in twice.uses)
    # A label moves two counts by one each: 2/σ², four labels in each of two runs, of which that share is settled.
    assert so_far(once) == pytest.approx(4 * 2 / 40**2, rel=1e-6)
    assert so_far(twice) == pytest.approx(8 * 2 / 40**2, rel=1e-6)


def test_a_run_that_they_were_taken_out_of_is_none_of_theirs() -> None:
    study = study_with_table()
    holder = holder_at(study, "LOW")
    run = run_teach(run_start(study, **{**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 40.0}}))
    services.consent_withdraw(holder=holder, acting_user=None)
    assert run_finish(run).labels == 12
    assert usage_of(holder).uses == []
    assert so_far(usage_of(holder)) == 0.0


def test_their_own_records_alone_are_theirs_to_read() -> None:
    study = study_with_table(records=2)
    (own,) = usage_of(holder_at(study, "HIGH")).records().values()
    assert len(own["records"]) == len(own["labels"]) == 2


def test_holder_who_took_no_part_reads_of_no_use() -> None:
    study = study_with_table(levels="HA-")
    finish(study)
    outside = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    assert usage_of(outside).uses == []


def ask(study: Study, **fields: object) -> Run:
    return run_start(study, **EVERYBODY, batch_size=4, **fields)


def test_participants_read_the_same_whether_or_not_their_records_voted() -> None:
    study = study_with_table(levels="A")
    run = run_ask(ask(study, share=0.5, choices={"sigma": 40.0, "radius_share": 0.2}))
    spent = balances(study).of(np.array(sorted(study.holders.values_list("pk", flat=True))))
    assert len(set(spent.tolist())) > 1, "else this test shows nothing"
    usages = [usage_of(holder) for holder in study.holders.all()]
    (fields,) = {(usage.uses[0], so_far(usage)) for usage in usages}
    assert fields[0].purpose == run.purpose
    used = shares(study)[run.pk].committed
    assert spent.max() <= fields[1] == pytest.approx(used * float(caps_of(2.0, study.delta)))


def test_uses_list_a_run_in_which_no_record_voted() -> None:
    study = study_with_table(levels="L")
    run = ask(study, choices={"sigma": 40.0, "radius_share": 0.2})
    batch = run_ask(run, batches=1).batches.get()
    silent = charges_of(Release.objects.get(run=run.pk, batch=batch.index))
    nobodys = DataHolder.objects.get(pk=silent.holders[silent.spent == 0][0])
    assert [use.purpose for use in usage_of(nobodys).uses] == [run.purpose]


def test_uses_of_a_holder_begin_when_they_join() -> None:
    study = study_with_table(levels="L-")
    late = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    run = run_ask(ask(study, share=0.5), batches=1)
    form = ConsentForm.objects.get(study=study)
    services.consent_give(holder=late, level="HIGH", form=form, acting_user=None)
    assert (usage_of(late).uses, so_far(usage_of(late))) == ([], 0.0)
    run = run_ask(run)
    (use,) = usage_of(late).uses
    # The second of three batches was being asked when they joined.
    assert use.since == Release.objects.get(run=run.pk, batch=2).recorded_at
    assert so_far(usage_of(late)) >= balances(study).of(np.array([late.pk]))[0]


def test_unused_shares_count_for_later_members() -> None:
    """Or the bound would be below what they can have spent."""
    study = study_with_table(levels="L-")
    late = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    first = run_ask(ask(study, share=0.5, choices={"sigma": 3.0}))
    services.consent_give(holder=late, level="LOW", form=ConsentForm.objects.get(study=study), acting_user=None)
    second = run_ask(ask(study, share=0.2, choices={"sigma": 3.0}))
    used = [shares(study)[run.pk].committed for run in (first, second)]
    assert min(used) > 0.1
    assert so_far(usage_of(late)) == pytest.approx(sum(used) * float(caps_of(3.0, study.delta)))
    assert so_far(usage_of(late)) >= balances(study).of(np.array([late.pk]))[0]


def test_the_largest_cap_counts_for_who_chose_a_stronger_level_since() -> None:
    study = study_with_table(levels="L")
    holder = holder_at(study, "LOW")
    run_ask(ask(study, share=0.5, choices={"sigma": 3.0}))
    before = so_far(usage_of(holder))
    services.consent_give(holder=holder, level="HIGH", form=ConsentForm.objects.get(study=study), acting_user=None)
    assert so_far(usage_of(holder)) == before > 0


def test_the_limit_of_a_choice_is_no_limit_of_a_weaker_one() -> None:
    """“Never above 57” was said to somebody who could choose 66 the next day."""
    study = study_with_table(levels="H")
    holder = holder_at(study, "HIGH")
    holder_link(holder=holder, user=user_create("hanna"))
    run_ask(ask(study, share=0.9, choices={"sigma": 3.0}))
    for page in ("uses", "results"):
        shown = text(as_("hanna").get(reverse(f"consent:{page}", args=[study.slug])))
        assert re.search(r"(?:above|more than) \d+, unless weaker protection is chosen\.", shown), page


def test_holder_of_several_studies_reads_their_joint_limit(settings: Any) -> None:
    settings.PERSON_CEILING = None  # which the page would say before anything was released
    user = user_create("hanna")
    client = as_(user)
    for slug in ("one", "two"):
        study = study_with_table(slug, holders=6)
        holder_link(holder=DataHolder.objects.filter(study=study).earliest("pk"), user=user)
        page = client.get(reverse("consent:my_studies")).content.decode()
        assert "All your studies together" not in page, "nothing was released, or by one study alone"
        run_ask(run_start(study, **ASKING_RUN))
    usages = [usage_of(holder) for holder in DataHolder.objects.filter(user=user)]
    together = right_guesses_together(usages)
    assert together > max(usage.right_guesses for usage in usages)
    page = client.get(reverse("consent:my_studies")).content.decode()
    assert f"<strong>{together} times in 100</strong> instead of 50" in page


def test_guardian_of_another_reads_of_no_limit_of_both_together(settings: Any) -> None:
    settings.PERSON_CEILING = None
    user = user_create("hanna")
    client = as_(user)
    for slug in ("one", "two"):
        study = study_with_table(slug, holders=6)
        run_ask(run_start(study, **ASKING_RUN))
        holder = DataHolder.objects.filter(study=study).earliest("pk")
        if slug == "two":
            record = {
                "kind": "guardian",
                "until": date(2099, 1, 1),
                "reason": "Seen.",
                "acting_user": user_create("sven"),
            }
            circumstance_record(study=study, pseudonym=holder.pseudonym, **record)
        holder_link(holder=DataHolder.objects.get(pk=holder.pk), user=user)
    assert all(usage_of(holder).mu_squared for holder in DataHolder.objects.filter(user=user))
    page = text(client.get(reverse("consent:my_studies")))
    assert "You take part: high protection." in page
    assert "You answer for p-000, as parent or guardian" in page and "p-000&#x27;s records are not used now" in page
    assert "All your studies together" not in page, "they are two people"
