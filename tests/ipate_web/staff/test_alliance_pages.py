"""Pages of alliances and of runs across sites, at the hub and at sites."""

import pytest
from django.urls import reverse

from consent.models import ConsentFormDraft, Role
from consent.services import consent_form_draft_save, membership_add
from consent.wording.facts import facts_of
from tests.factories import user_create
from tests.pages import as_, text, url
from tests.training.runs import run_approve
from tests.training.sites.alliances import Installations, advance, olga
from tests.training.sites.conftest import _in_this_process
from training.alliances.exchange import exchange
from training.models import Run

__all__ = ["_in_this_process"]

pytestmark = pytest.mark.django_db


def test_both_sides_see_a_run_from_its_proposal_to_its_approval() -> None:
    there, browser, otto = Installations(), as_("olga"), as_("otto")
    for study in (there.hub_study, *there.studies):
        membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
    page = text(browser.get(url("alliance", there.hub_study, there.hub.pk)))
    assert all(name in page for name in there.names)
    sent = {"title": "Joint", "method": "sgd", "mode": "together", "sites": there.names}
    sent |= {"public_dataset": there.dataset(there.hub_study, "public").pk}
    assert otto.get(url("joint_run_new", there.hub_study, there.hub.pk)).status_code == 200
    page = otto.post(url("joint_run_new", there.hub_study, there.hub.pk), sent)
    assert page.status_code == 302, page.context["form"].errors
    run = Run.objects.get()
    assert "Clinic B" in text(browser.get(url("run", run)))
    run_approve(run=run, acting_user=olga(), share=0.5)
    site = there.sites[0]
    exchange(site)
    assert "proposal 1" in text(browser.get(url("alliance", site.study, site.pk)))
    take = reverse("staff:joint_run_take", args=[site.study.slug, site.pk, run.pk.hex])
    assert "University Hub proposes this run" in text(browser.get(take))
    assert otto.post(take, {"private_dataset": there.dataset(site.study, "private").pk}).status_code == 302
    taken = Run.objects.get(study=site.study)
    for name in ("run", "run_approve"):
        page = browser.get(url(name, taken))
        assert page.status_code == 200
    assert "This study is a site of the alliance." in text(browser.get(url("run", taken)))


def test_operators_of_the_hub_continue_without_a_silent_site_after_reading_the_consequences() -> None:
    there, browser = Installations(3), as_("olga")
    steps = {"method": Run.Method.SGD, "choices": {"steps": 3, "sigma": 10.0}}
    runs = there.start(**steps)
    for run in (*runs[1:], runs[0], *runs[2:]):  # all approve, the hub asks, and Clinic A is silent
        advance(run)
    page = browser.get(url("run", runs[0]))
    assert "Continue without Clinic A" in text(page) and "Continue without Clinic B" not in text(page)
    go_on = reverse("staff:joint_run_without", args=[there.hub_study.slug, runs[0].pk, 0])
    page = text(browser.get(go_on))
    assert "No one will be charged for it, because not" in page
    assert "The run will end, because at least 3 sites must remain" in page
    assert browser.post(go_on).status_code == 302
    assert "The run no longer waits for this site." in text(browser.get(go_on, follow=True))
    assert advance(runs[0]).status == Run.Status.FAILED


def test_an_existing_draft_mentions_a_new_alliance_as_well() -> None:
    there = Installations()
    site = there.sites[0]
    consent_form_draft_save(
        study=site.study,
        acting_user=user_create("carla"),
        texts={"en": "Begun by Carla."},
        facts=facts_of(site.study) | {"retention": "Ten years.", "alliance": {}},
    )
    act = reverse("staff:alliance_act", args=[site.study.slug, site.pk, "tell"])
    assert as_("olga").post(act).url == url("consent_forms", site.study)
    draft = ConsentFormDraft.objects.get(study=site.study)
    assert (draft.texts, draft.facts["retention"]) == ({"en": "Begun by Carla."}, "Ten years.")
    assert draft.facts["alliance"] == facts_of(site.study)["alliance"] != {}
