"""Page on which a data steward registers an encoder, and the same by the API."""

import json
import os
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from rest_framework.test import APIClient

from consent.models import Study
from ipate_web.tokens.models import ApiToken
from tests.factories import steward_add
from tests.learning.encoders.networks import image_encoder
from tests.pages import as_, roles_fill
from tests.snapshots import built_once
from tests.training.runs import study_with_data
from training.models import Encoder
from training.services.encodings import encoding_work

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
@built_once
def study() -> Study:
    return steward_add(study_with_data())


def form(**fields: object) -> dict[str, object]:
    sent = {"name": "small", "kind": "image", "size": 12, "mean": "0.5 0.5 0.5", "spread": "0.25 0.25 0.25"}
    entries = {"layout": "channels_first", "licence": "MIT", "source": "made by a test", "stated": "on"}
    return sent | entries | {"file": SimpleUploadedFile("small.onnx", image_encoder().content)} | fields


def test_an_encoder_is_registered_on_its_page(study: Study) -> None:
    page, steward = reverse("staff:encoders", args=[study.slug]), as_("sven")
    for fields, message in (
        ({"file": SimpleUploadedFile("small.onnx", b"nothing")}, "The file is no ONNX file"),
        ({"mean": "half"}, "Write numbers with a point"),
        ({"spread": ""}, "Mean and spread are not one number each"),
        ({"stated": ""}, "only if you state this"),
    ):
        answer = steward.post(page, form(**fields))
        assert answer.status_code == 422 and message in answer.content.decode(), fields
    assert steward.post(page, form()).status_code == 302
    encoder = Encoder.objects.get()
    waiting = steward.get(page).content.decode()
    assert "small" in waiting and "being encoded (0 %)" in waiting
    for encoding in encoder.encodings.all():
        encoding_work(encoding.pk)
    done = steward.get(page).content.decode()
    assert "private: encoded" in done and encoder.file_digest in done
    if folder := os.environ.get("IPATE_PAGES"):
        Path(folder, "encoders.html").write_text(done, "utf-8")
    proposal = as_("olga").get(reverse("staff:run_new", args=[study.slug])).content.decode()
    assert f'value="{encoder.digest}"' in proposal


def test_an_encoder_is_withdrawn_on_its_page(study: Study) -> None:
    page, steward = reverse("staff:encoders", args=[study.slug]), as_("sven")
    roles_fill(study)
    steward.post(page, form())
    encoder = Encoder.objects.get()
    confirm = reverse("staff:encoder_withdraw", args=[study.slug, encoder.pk])
    assert confirm in steward.get(page).text and confirm not in as_("operator").get(page).text
    assert "its file and its vectors are deleted" in steward.get(confirm).text
    assert as_("operator").post(confirm, {"reason": "I want to."}).status_code == 403
    assert steward.post(confirm, {"reason": ""}).status_code == 422
    assert steward.post(confirm, {"reason": "It was the wrong file."}).status_code == 302
    assert "This encoder was withdrawn on" in steward.get(page).text and confirm not in steward.get(page).text
    assert "It was the wrong file." in steward.get(reverse("staff:disposals", args=[study.slug])).text
    proposal = as_("olga").get(reverse("staff:run_new", args=[study.slug])).text
    assert encoder.digest not in proposal
    assert steward.get(confirm).status_code == 404
    assert steward.post(page, form()).status_code == 302, "it can be registered anew"


def test_an_encoder_is_registered_by_the_api(study: Study) -> None:
    _, secret = ApiToken.objects.create(User.objects.get(username="sven"), name="token")
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
    takes = json.dumps(image_encoder().takes.to_json())
    sent = {"name": "small", "takes": takes, "licence": "MIT", "source": "made by a test", "stated": True}
    url = reverse("api:study-encoders", args=[study.slug])
    file = SimpleUploadedFile("small.onnx", image_encoder().content)
    answer = client.post(url, sent | {"file": file}, format="multipart")
    assert answer.status_code == 201, answer.content
    assert answer.json()["digest"] == image_encoder().digest
    assert [each["state"] for each in client.get(url).json()[0]["encodings"]] == ["waiting"] * 3
