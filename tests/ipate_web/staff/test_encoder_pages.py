"""The page on which a data steward registers an encoder, and the same through the API."""

import json

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from rest_framework.test import APIClient

from consent.models import Study
from ipate_web.tokens.models import ApiToken
from learning.formats import ImageSchema, Rows
from tests.factories import members_add, study_open
from tests.learning.encoders.networks import image_encoder
from tests.pages import as_, roles_fill, text
from tests.reading import encode_here  # noqa: F401
from tests.snapshots import built_once
from training.models import Encoder, Encoding
from training.services.datasets import dataset_import
from training.services.encoders import encoding_work

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("encode_here")]


@pytest.fixture
@built_once
def study() -> Study:
    study = members_add(roles_fill(study_open("photos")), sven="steward")
    for kind, holders in (("private", ["p-1", "p-2", "p-3", "p-4"]), ("public", None), ("test", None)):
        x = np.arange(4 * 8 * 8 * 3, dtype=np.uint8).reshape(4, 8, 8, 3)
        rows = Rows(x, np.array([0, 1, 0, 1]), holders)
        dataset_import(study=study, name=kind, kind=kind, rows=rows, schema=ImageSchema(8, 8, 3, ("red", "blue")))
    return study


def client_of(person: str) -> APIClient:
    """Return an API client with a user's token."""
    _, secret = ApiToken.objects.create(User.objects.get(username=person), name="token")
    return APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")


def form(**fields: object) -> dict[str, object]:
    sent = {"name": "small", "kind": "image", "size": 12, "mean": "0.5 0.5 0.5", "spread": "0.25 0.25 0.25"}
    entries = {"layout": "channels_first", "licence": "MIT", "source": "made by a test", "stated": "on"}
    return sent | entries | {"file": SimpleUploadedFile("small.onnx", image_encoder().content)} | fields


def test_an_encoder_is_registered_and_withdrawn_on_its_page(study: Study) -> None:
    page, steward, operator = reverse("staff:encoders", args=[study.slug]), as_("sven"), as_("operator")
    for fields, message in (
        ({"file": SimpleUploadedFile("small.onnx", b"nothing")}, "The file is not an ONNX file"),
        ({"mean": "half"}, "Write numbers with a decimal point, separated"),
        ({"spread": ""}, "The mean and the spread must each be one"),
        ({"stated": ""}, "To use this, confirm the statement"),
    ):
        answer = steward.post(page, form(**fields))
        assert answer.status_code == 422 and message in answer.text, fields
    assert steward.post(page, form()).status_code == 302
    encoder = Encoder.objects.get()
    waiting = text(steward.get(page))
    assert "small" in waiting and "being encoded (0 %)" in waiting
    encoding_work(encoder.encodings.get(dataset__kind="private").pk)
    done = text(steward.get(page))
    assert "private: encoded" in done and encoder.file_digest in done
    offered = f'value="{encoder.digest}"'
    new = reverse("staff:run_new", args=[study.slug])
    assert offered in operator.get(new).text

    confirm = reverse("staff:encoder_withdraw", args=[study.slug, encoder.pk])
    assert confirm in steward.get(page).text and confirm not in operator.get(page).text
    assert "its file and its vectors will be deleted" in steward.get(confirm).text
    assert operator.post(confirm, {"reason": "I want to."}).status_code == 403
    assert steward.post(confirm, {"reason": ""}).status_code == 422
    assert steward.post(confirm, {"reason": "It was the wrong file."}).status_code == 302
    assert "This encoder was withdrawn on" in steward.get(page).text and confirm not in steward.get(page).text
    assert "It was the wrong file." in steward.get(reverse("staff:disposals", args=[study.slug])).text
    assert offered not in operator.get(new).text
    assert steward.get(confirm).status_code == 404
    assert steward.post(page, form()).status_code == 302, "it can be registered again"


def looked_at(study: Study, person: str, client: APIClient) -> tuple[str, object]:
    """Return what a user sees of the study's encoders: the page's text and the API's response."""
    answer = client.get(reverse("api:study-encoders", args=[study.slug]))
    page = as_(person).get(reverse("staff:encoders", args=[study.slug]))
    return text(page) if page.status_code == 200 else str(page.status_code), answer.json()


def test_only_data_stewards_see_how_far_the_encoding_of_private_records_is(study: Study) -> None:
    """If encoding one record fails or takes long, nobody else may learn it."""
    page = reverse("staff:encoders", args=[study.slug])
    assert as_("sven").post(page, form()).status_code == 302
    private = Encoding.objects.get(dataset__kind="private")
    others = ("operator", "researcher", "committee", "auditor")
    clients = {person: client_of(person) for person in (*others, "sven")}
    seen: dict[str, list[tuple[str, object]]] = {person: [] for person in clients}
    failed = {"state": "failed", "message": "A record is too long."}
    for change in ({}, {"progress": 0.7}, failed, {"state": "done"}):
        Encoding.objects.filter(pk=private.pk).update(**change)
        for person, views in seen.items():
            views.append(looked_at(study, person, clients[person]))
    for person in others:
        assert all(view == seen[person][0] for view in seen[person]), person
        assert "private" not in str(seen[person][0][1]).replace("without the private", "")
    steward = seen["sven"]
    assert len({view[0] for view in steward}) == 4 and "A record is too long." in steward[2][0]
    assert [next(e for e in view[1][0]["encodings"] if e["dataset"] == "private")["state"] for view in steward] == [
        *("waiting", "waiting", "failed", "done")
    ]


def test_an_encoder_is_registered_by_the_api(study: Study) -> None:
    client = client_of("sven")
    takes = json.dumps(image_encoder().takes.to_json())
    sent = {"name": "small", "takes": takes, "licence": "MIT", "source": "made by a test", "stated": True}
    url = reverse("api:study-encoders", args=[study.slug])
    file = SimpleUploadedFile("small.onnx", image_encoder().content)
    answer = client.post(url, sent | {"file": file}, format="multipart")
    assert answer.status_code == 201, answer.content
    assert answer.json()["digest"] == image_encoder().digest
    assert [each["state"] for each in client.get(url).json()[0]["encodings"]] == ["waiting"] * 3
