import pytest
from django.test import Client
from django.urls import reverse

from consent.models import ConsentEvent, DataHolder
from tests import factories
from tests.consent.conftest import Decide


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(factories.user_create("root", is_superuser=True, is_staff=True))
    return client


@pytest.mark.parametrize("model", ["consentform", "epsilonpolicy", "epsilonpolicyapproval", "consentevent"])
def test_what_is_append_only_can_only_be_looked_at(admin: Client, holder: DataHolder, give: Decide, model: str) -> None:
    pk = {"consentevent": give(holder, "HIGH").pk}.get(model)
    if pk is None:
        pk = ConsentEvent._meta.apps.get_model("consent", model).objects.get().pk
    base = f"admin:consent_{model}"
    assert admin.get(reverse(f"{base}_changelist")).status_code == 200
    assert admin.get(reverse(f"{base}_change", args=[pk])).status_code == 200
    assert admin.post(reverse(f"{base}_change", args=[pk]), {}).status_code == 403
    assert admin.post(reverse(f"{base}_delete", args=[pk]), {"post": "yes"}).status_code == 403
    assert admin.get(reverse(f"{base}_add")).status_code == 403
    admin.post(reverse(f"{base}_changelist"), {"action": "delete_selected", "_selected_action": [pk], "post": "yes"})
    assert ConsentEvent._meta.apps.get_model("consent", model).objects.filter(pk=pk).exists()


@pytest.mark.parametrize("model", ["study", "membership", "dataholder"])
def test_people_and_studies_can_be_repaired(admin: Client, holder: DataHolder, model: str) -> None:
    pk = ConsentEvent._meta.apps.get_model("consent", model).objects.first().pk
    page = admin.get(reverse(f"admin:consent_{model}_change", args=[pk]))
    assert 'name="_save"' in page.content.decode()


def test_what_holders_were_told_is_not_repaired_away(admin: Client, holder: DataHolder, give: Decide) -> None:
    path = reverse("admin:consent_study_change", args=[holder.study.pk])
    assert 'name="purpose"' in admin.get(path).content.decode()
    give(holder, "HIGH")
    page = admin.get(path).content.decode()
    assert not any(f'name="{field}"' in page for field in ("purpose", "controller", "delta", "slug"))
