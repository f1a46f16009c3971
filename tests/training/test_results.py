"""Results, and uses of people's records, as the people themselves see them."""

import re
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounting.accounts import balances
from accounting.caps import caps_of
from accounting.models import Release
from accounting.shares import shares
from common.noise import SimulationNoise
from consent import services
from consent.documents.letters import LetterWritten, letter_context
from consent.models import ConsentForm, DataHolder, Letter, Mail, News, Study
from consent.promises.uses import results_of, right_guesses_together, usage_of
from consent.selectors import consent_form_in_force
from consent.services import holder_link
from consent.services.holders import circumstance_record
from consent.services.invitations import invitations_create
from consent.services.letters import letterhead_of, letters_due, letters_print
from consent.services.mail import addresses_forget, mail_render, way_wish
from tests import factories
from tests.clock import later
from tests.factories import user_create
from tests.ipate_web.accounts.test_mails import person
from tests.pages import as_, text
from tests.training.asking import ASKING_RUN, EVERYBODY, run_ask
from tests.training.runs import TABLE_RUN, rehearsal_with_table, run_finish, run_start, run_teach, study_with_table
from training.models import Run, StudentModel
from training.notices import notify_yearly
from training.services.downloads import predictions_record
from training.services.drawings import head_counts_draw
from training.services.erasures import records_erase, study_close
from training.services.publication import model_stage_set
from training.services.students import student_withdraw

pytestmark = pytest.mark.django_db

RUN = {**TABLE_RUN, "aggregator": {"name": "gnmax", "sigma": 40.0}, "wanted_labels": 4, "share": 0.5}


def publish(study: Study, **fields: object) -> Run:
    """Return a finished run that has published its student."""
    return run_finish(run_start(study, **{**RUN, "title": "Who smokes", "purpose": "To help people stop.", **fields}))


def held(study: Study, level: str) -> DataHolder:
    return DataHolder.objects.filter(consent_events__level=level, study=study).earliest("pk")


def ask(study: Study, **fields: object) -> Run:
    return run_start(study, **EVERYBODY, batch_size=4, **fields)


def page_of(holder: DataHolder, name: str = "hanna") -> str:
    """Return the page of a holder, who now has an account."""
    if holder.user is None:
        services.holder_link(holder=holder, user=factories.user_create(name))
    return text(as_(holder.user).get(reverse("consent:uses", args=[holder.study.slug])))


def mailed(kind: str) -> list[str]:
    return sorted(Mail.objects.filter(kind=kind).values_list("user__username", flat=True))


def test_a_result_says_what_how_good_how_used_and_what_it_cost() -> None:
    study = study_with_table()
    holder, run = held(study, "LOW"), publish(study)
    evaluation = run.student.card["evaluation"]
    commonest = max(each["points"] for each in evaluation["classes"]) / evaluation["points"]
    page = page_of(holder)
    assert "Who smokes To help people stop. Use of your records began on" in page and "Published on" in page
    assert f"The model says which of these fits a new record best: {', '.join(run.classes)}." in page
    assert (
        f"The model is right in about {round(100 * evaluation['accuracy'])} of 100 cases, measured on 21 test records. "
        f"Always giving the most common answer would be right in {round(100 * commonest)} of 100."
    ) in page
    assert "The study has not put the model into use (stage: candidate). No one has downloaded the model or" in page
    after = usage_of(holder).right_guesses
    assert after > 50
    assert "All these numbers assume that both answers are equally likely beforehand." in page
    assert f"is yours. They would be right at most {usage_of(holder).right_record_guesses} times in 100" in page
    assert f"was right at most 50 times in 100. Now it is right at most {after} times in 100." in page
    for other in ("choice", "study"):
        links = as_(holder.user).get(reverse(f"consent:{other}", args=[study.slug])).text
        assert reverse("consent:uses", args=[study.slug]) in links
    assert as_(holder.user).get(f"/my/{study.slug}/learned/").url == reverse("consent:uses", args=[study.slug])


def test_each_result_costs_what_it_added_to_the_bound_and_nothing_who_took_no_part() -> None:
    study = study_with_table(levels="AA-")
    holder = held(study, "AVERAGE")
    publish(study)
    once = usage_of(holder).right_guesses
    publish(study, wanted_labels=12)
    second, first = usage_of(holder).uses
    assert (first.cost.before, first.cost.after) == (50, once)
    assert (second.cost.before, second.cost.after) == (once, usage_of(holder).right_guesses)
    assert once < second.cost.after
    outside = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    assert "Not at all: your records were not used for this." in page_of(outside)
    assert usage_of(outside).uses == []


def test_results_count_the_uses_of_a_model_and_say_that_it_was_withdrawn() -> None:
    study, olga = study_with_table(), factories.user_create("olga")
    run, holder = publish(study), held(study, "LOW")
    for user, records in ((olga, 1), (olga, 2), (factories.user_create("dan"), 1500)):
        predictions_record(model=run.student, records=records, acting_user=user)
    model_stage_set(run=run, stage=StudentModel.Stage.PRODUCTION, acting_user=olga)
    page = page_of(holder)
    assert "The model has been in use since" in page
    assert "2 people and programs have downloaded the model or asked it for predictions." in page
    assert "This site has used the model to make predictions for 1,503 records." in page
    assert "olga" not in page and "dan" not in page
    student_withdraw(run=run, version=1, reason="It misreads ages.", acting_user=olga)
    page = page_of(holder)
    assert "It was withdrawn on" in page and "It misreads ages." in page
    assert "How good it is" not in page
    assert f"Now it is right at most {usage_of(holder).right_guesses} times in 100." in page
    assert "This is permanent, because released results cannot be taken" in page


def test_it_works_by_link_for_a_guardian_and_after_the_end() -> None:
    study, today = study_with_table(), timezone.localdate()
    holder = held(study, "HIGH")
    publish(study)
    fields = {"kind": "guardian", "reason": "A child.", "acting_user": None, "until": today + timedelta(days=900)}
    circumstance_record(study=study, pseudonym=holder.pseudonym, **fields)
    (new,) = invitations_create(study=study, acting_user=None, pseudonyms=[holder.pseudonym], replace=True)
    client = Client()
    client.get(f"/join/{new.code}/")
    page = text(client.get(reverse("consent:uses", args=[study.slug])))
    assert f"whether {holder.pseudonym} took part" in page
    assert "you took part" not in page and "your records" not in page
    study_close(study=study, reason="Done.", acting_user=factories.user_create("olga"), erase_after=today)
    assert "Who smokes" in text(client.get(reverse("consent:uses", args=[study.slug])))


def test_a_rehearsal_publishes_nothing_to_people() -> None:
    study = rehearsal_with_table()
    run_finish(run_start(study, **TABLE_RUN, seed=1))
    assert results_of(study) == []
    assert "This is a rehearsal with data that is not" in page_of(study.holders.earliest("pk"))
    assert not News.objects.exists()


def people(study: Study) -> None:
    """Create a person in each situation, all with an account and a confirmed address."""
    form = consent_form_in_force(study)
    for name in ("takes part", "refuses", "undecided", "withdrew", "erased", "died", "unwilling"):
        user = person(name.replace(" ", "-"), **({"results": False} if name == "unwilling" else {}))
        holder = factories.holder_create(study, f"P-{name}", user=user)
        if name == "refuses":
            services.consent_refuse(holder=holder, form=form, acting_user=user)
        elif name != "undecided":
            services.consent_give(holder=holder, level="HIGH", form=form, acting_user=user)
        if name in ("withdrew", "erased"):
            services.consent_withdraw(holder=holder, acting_user=user, keep=name == "withdrew")
        if name == "died":
            fields = {"kind": "died", "reason": "A letter.", "acting_user": None}
            circumstance_record(study=study, pseudonym=holder.pseudonym, **fields)
    records_erase(study.pk)


def test_a_first_publication_notifies_current_participants() -> None:
    study = study_with_table()
    people(study)
    run = publish(study)
    assert mailed("result_published") == ["refuses", "takes-part"]
    takes, refuses = (mail_render(mail) for mail in Mail.objects.filter(kind="result_published").order_by("-user"))
    assert takes.body == refuses.body, "it does not reveal who takes part"
    assert "Who smokes: To help people stop." in takes.body and "of 100 cases" in takes.body
    assert "/my/table/uses/" in takes.body
    holder = DataHolder.objects.get(study=study, user__username="takes-part")
    services.consent_withdraw(holder=holder, acting_user=holder.user)
    assert mail_render(Mail.objects.get(kind="result_published", user=holder.user)) is None, "they get no more news"
    student_withdraw(run=run, version=1, reason="Wrong.", acting_user=factories.user_create("olga"))
    assert mail_render(Mail.objects.filter(kind="result_published").first()) is None


def test_a_year_with_releases_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_with_table()
    people(study)
    publish(study)
    assert notify_yearly() == 0, "the year is not over"
    later(monkeypatch, days=370)
    assert (notify_yearly(), notify_yearly()) == (1, 0)
    assert mailed("results_of_year") == ["refuses", "takes-part"]
    later(monkeypatch, days=370)
    assert notify_yearly() == 0, "no releases in the second year"
    assert News.objects.filter(kind="year").count() == 1
    monkeypatch.undo()
    News.objects.filter(kind="year").update(published_at=timezone.now() - timedelta(days=360))
    publish(study, title="Who drinks")
    assert notify_yearly() == 0, "that year is not over"
    later(monkeypatch, days=10)
    assert notify_yearly() == 1
    assert len(mailed("results_of_year")) == 4
    mail_body = mail_render(Mail.objects.filter(kind="results_of_year").first()).body
    assert mail_body.index("Who drinks") < mail_body.index("Who smokes")


@pytest.mark.exhaustive
def test_a_letter_goes_to_whom_no_mail_reaches_and_tells_no_level() -> None:
    study, olga = study_with_table(levels="HL-"), factories.user_create("olga")
    holder = held(study, "LOW")
    publish(study)
    services.consent_withdraw(holder=held(study, "HIGH"), acting_user=None)
    due = letters_due(study, Letter.Kind.NEWS)
    assert holder.pseudonym in [each.holder.pseudonym for each in due]
    assert len(due) == 19, "one of ten at each of two levels has withdrawn; ten have not decided"
    printed = letters_print(study=study, kind=Letter.Kind.NEWS, acting_user=olga)
    assert letters_due(study, Letter.Kind.NEWS) == []
    letter = LetterWritten(printed[0].issued, "en", Letter.Kind.NEWS)
    message = " ".join(letter_context(study, letter, letterhead_of(study))["paragraphs"])
    assert "Who smokes: To help people stop." in message and "of 100 cases" in message
    assert "protection:" not in message and "You decide whether it may, and how strongly" not in message
    publish(study, title="Who drinks", wanted_labels=12)
    assert len(letters_due(study, Letter.Kind.NEWS)) == 19, "only of the newest publication, and once"
    way_wish(holder=holder, way="nothing")
    assert len(letters_due(study, Letter.Kind.NEWS)) == 18
    addresses_forget(holders=[holder.pk])
    assert len(letters_due(study, Letter.Kind.NEWS)) == 19, "the wish is forgotten, too"


def test_uses_mention_head_counts_and_limits_apply_to_the_current_choice() -> None:
    """The page must not say “Never above 57” to someone who can still choose 66; head counts charge everybody."""
    study = study_with_table()
    holder = held(study, "HIGH")
    holder_link(holder=holder, user=user_create("hanna"))
    uses = reverse("consent:uses", args=[study.slug])
    assert "Your protection so far" not in as_("hanna").get(uses).text
    head_counts_draw(study=study, acting_user=user_create("olga"), noise=SimulationNoise(1))
    page = text(as_("hanna").get(uses))
    assert "Nothing so far: your records have not been used" in page
    assert f"at most {usage_of(holder).right_guesses} times in 100 instead of 50" in page
    assert "Other things that were released, such as" in page
    run_ask(ask(study, share=0.9, choices={"sigma": 3.0}))
    shown = text(as_("hanna").get(uses))
    assert re.search(r"above \d+ unless you choose weaker protection\.", shown)


@pytest.mark.exhaustive
def test_uses_list_runs_newest_first_with_shares_that_add_up() -> None:
    """Runs that the holder was removed from are not listed."""
    study = study_with_table(levels="A")
    holder, left = DataHolder.objects.filter(study=study).order_by("pk")[:2]
    publish(study, purpose="First", variant=Run.Variant.STANDARD)
    once = usage_of(holder)
    run = run_teach(run_start(study, **RUN, purpose="Second", variant=Run.Variant.STANDARD))
    services.consent_withdraw(holder=left, acting_user=None)
    assert run_finish(run).labels == 4
    twice = usage_of(holder)
    assert [use.purpose for use in twice.uses] == ["Second", "First"]
    assert [use.purpose for use in usage_of(left).uses] == ["First"]
    assert usage_of(left).mu_squared == once.mu_squared
    assert all("a model has learned" in use.state for use in twice.uses)
    # A label changes two counts by one each: 2/σ². The share covers four labels in each of two runs.
    assert (once.mu_squared, twice.mu_squared) == pytest.approx((4 * 2 / 40**2, 8 * 2 / 40**2), rel=1e-6)
    (own,) = twice.records().values()
    assert len(own["records"]) == len(own["labels"]) == 1, "only their own records are shown to them"


def test_participants_read_the_same_whether_or_not_their_records_voted() -> None:
    study = study_with_table(levels="A")
    run = run_ask(ask(study, share=0.5, choices={"sigma": 40.0, "radius_share": 0.2}))
    spent = balances(study).of(np.array(sorted(study.holders.values_list("pk", flat=True))))
    assert len(set(spent.tolist())) > 1, "otherwise this test shows nothing"
    usages = [usage_of(holder) for holder in study.holders.all()]
    (fields,) = {(usage.uses[0], usage.mu_squared) for usage in usages}
    assert fields[0].purpose == run.purpose
    used = shares(study)[run.pk].committed
    assert spent.max() <= fields[1] == pytest.approx(used * float(caps_of(2.0, study.delta)))


def test_uses_of_a_holder_begin_when_they_join() -> None:
    study = study_with_table(levels="L-")
    late = DataHolder.objects.filter(study=study, consent_events=None).earliest("pk")
    run = run_ask(ask(study, share=0.5), batches=1)
    form = ConsentForm.objects.get(study=study)
    services.consent_give(holder=late, level="HIGH", form=form, acting_user=None)
    assert (usage_of(late).uses, usage_of(late).mu_squared) == ([], 0.0)
    run = run_ask(run)
    (use,) = usage_of(late).uses
    # The second of three batches was in progress when they joined.
    assert use.since == Release.objects.get(run=run.pk, batch=2).recorded_at
    assert usage_of(late).mu_squared >= balances(study).of(np.array([late.pk]))[0]


@pytest.mark.parametrize("is_guardian", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_holder_of_several_studies_reads_their_joint_limit_but_not_a_guardian(settings: Any, is_guardian: bool) -> None:
    settings.PERSON_CEILING = None  # which the page would say before any release
    user, my_studies = user_create("hanna"), reverse("consent:my_studies")
    client = as_(user)
    for slug in ("one", "two"):
        study = study_with_table(slug, holders=6)
        holder = DataHolder.objects.filter(study=study).earliest("pk")
        is_answered_for = is_guardian and slug == "two"
        if not is_answered_for:
            holder_link(holder=holder, user=user)
        assert "All your studies together" not in client.get(my_studies).text, "released by one only"
        run_ask(run_start(study, **ASKING_RUN))
        if is_answered_for:
            fields = {"kind": "guardian", "until": date(2099, 1, 1), "reason": "Seen.", "acting_user": None}
            circumstance_record(study=study, pseudonym=holder.pseudonym, **fields)
            holder_link(holder=DataHolder.objects.get(pk=holder.pk), user=user)
    usages = [usage_of(holder) for holder in DataHolder.objects.filter(user=user)]
    assert all(usage.mu_squared for usage in usages)
    together = right_guesses_together(usages)
    assert together > max(usage.right_guesses for usage in usages)
    answer = client.get(my_studies)
    if is_guardian:
        page = text(answer)
        assert "You take part: high protection." in page
        for words in ("You answer for p-000, as parent or guardian", "p-000&#x27;s records are not used at present"):
            assert words in page
        assert "All your studies together" not in page, "they are two people"
    else:
        assert f"<strong>{together} times in 100</strong> instead of 50" in answer.text
