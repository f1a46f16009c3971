"""Tests of the consent admin."""

import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse

from consent import services
from consent.models import DataHolder
from tests import factories
from tests.consent.conftest import Decide
from tests.pages import as_


@pytest.fixture
def admin(db: None) -> Client:
    return as_(factories.user_create("root", is_superuser=True, is_staff=True))


def test_append_only_rows_are_read_only(admin: Client, holder: DataHolder, give: Decide) -> None:
    give(holder, "HIGH")
    for name in ("consentform", "epsilonpolicy", "epsilonpolicyapproval", "consentevent", "rolechange"):
        rows, base = apps.get_model("consent", name).objects, f"admin:consent_{name}"
        pk = rows.first().pk
        change, delete = (reverse(f"{base}_{act}", args=[pk]) for act in ("change", "delete"))
        listed, add = reverse(f"{base}_changelist"), reverse(f"{base}_add")
        assert [admin.get(page).status_code for page in (listed, change, add)] == [200, 200, 403], name
        assert [admin.post(page, {"post": "yes"}).status_code for page in (change, delete)] == [403, 403], name
        admin.post(listed, {"action": "delete_selected", "_selected_action": [pk], "post": "yes"})
        assert rows.filter(pk=pk).exists(), name
    for repaired in (holder, holder.study):
        page = reverse(f"admin:consent_{repaired._meta.model_name}_change", args=[repaired.pk])
        assert 'name="_save"' in admin.get(page).text


def test_nothing_leads_from_a_holder_to_their_choice(admin: Client, holder: DataHolder) -> None:
    """One person's level is looked up where every look is on record."""
    form = holder.study.consent_forms.get()
    event = services.consent_give(holder=holder, level="HIGH", form=form, acting_user=holder.user)
    pages = {name: reverse(f"admin:consent_{name}_changelist") for name in ("consentevent", "dataholder")}
    shown = admin.get(reverse("admin:consent_consentevent_change", args=[event.pk])).text
    assert "HIGH" in shown or "high protection" in shown
    assert not [secret for secret in (holder.pseudonym, holder.user.username, event.hash) if secret in shown]
    for name, sought in (
        ("consentevent", {"holder": holder.pk}),
        ("consentevent", {"holder__id__exact": holder.pk}),
        ("consentevent", {"recorded_by": holder.user.pk}),
        ("consentevent", {"study__consent_events__holder": holder.pk}),
        ("dataholder", {"consent_events": event.pk}),
        ("dataholder", {"spending__history": 1}),
    ):
        assert admin.get(pages[name], sought).status_code == 400, sought
    for name in pages:
        assert len(admin.get(pages[name], {"study__id__exact": holder.study_id}).context["cl"].queryset) == 1
    page = admin.get(reverse("admin:consent_dataholder_delete", args=[holder.pk]))
    assert page.status_code == 403, "the question names what would be lost"
    chosen = {"action": "delete_selected", "_selected_action": [holder.pk]}
    assert "high" not in admin.post(pages["dataholder"], chosen, follow=True).text.lower()


def test_information_for_holders_is_fixed_once_they_can_decide(admin: Client) -> None:
    study = factories.study_create()
    path = reverse("admin:consent_study_change", args=[study.pk])
    assert 'name="purpose"' in admin.get(path).content.decode()
    factories.form_publish(study)
    page = admin.get(path).content.decode()
    assert 'name="purpose"' not in page and 'name="delta"' in page
    factories.policy_approve(study)
    page = admin.get(path).content.decode()
    assert not any(f'name="{field}"' in page for field in ("purpose", "controller", "delta", "slug"))


def test_several_rows_are_named_by_a_word_of_their_own() -> None:
    """Django would add an s to the name of one, in every language: “Laufs”, “chunk of teacherss”."""
    ours = ("common", "consent", "accounting", "training", "tokens")
    models = [model for app in ours for model in apps.get_app_config(app).get_models()]
    unnamed = [model._meta.label for model in models if "verbose_name_plural" not in model._meta.original_attrs]
    assert models and unnamed == []
