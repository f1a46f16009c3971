"""Encoders encode a study's records once, runs learn from the vectors, and erasing a record erases its vectors."""

from datetime import timedelta

import numpy as np
import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone
from ipate_client import LocalModel
from tokenizers import Tokenizer

from common.artifacts import arrays_load, model_fetch
from consent.models import DataHolder, Disposal, Study
from consent.services import consent_withdraw
from consent.services.changes import change_faults
from learning.encoders import EncoderProcess, ImageInput
from learning.formats import ImageSchema, Rows, TabularSchema
from learning.formats.columns import TextColumn
from learning.representations import representation_create
from tests.factories import study_open, user_create
from tests.learning.encoders.networks import bright_network, image_encoder, image_network, noisy_network, text_encoder
from tests.reading import encode_here  # noqa: F401
from tests.snapshots import built_once
from tests.training.asking import STEPS_RUN
from tests.training.runs import run_draft, run_finish, run_like, study_fill
from training.engine.records import Space, labelled_points, points_of, records_key, records_load
from training.models import Dataset, Encoder, Encoding
from training.services.datasets import dataset_import
from training.services.encoders import encoder_register, encoder_withdraw, encoding_work, encodings_sweep
from training.services.erasures import dataset_remove, records_erase
from training.services.runs import run_withdraw
from training.services.students import student_predict
from training.verification import replay_faults

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("encode_here")]

SCHEMA = ImageSchema(8, 8, 3, ("red", "blue"))


def images(number: int, seed: int, holders: list[str] | None = None) -> Rows:
    """Return reddish and bluish images, in bytes."""
    rng = np.random.default_rng(seed)
    classes = np.arange(number) % 2
    x = rng.integers(0, 120, (number, 8, 8, 3))
    x[np.arange(number), :, :, 2 * classes] += 120
    return Rows(x.astype(np.uint8), classes.astype(np.int64), holders)


@built_once
def study_of(kind: str = "images") -> Study:
    """Return a study of 30 holders with private, public and test records, either images or messages."""
    schema, rows = (SCHEMA, images) if kind == "images" else (MESSAGES, messages)
    study = study_open(kind, delta=1e-4, retain_votes=True)
    parts = {"private": rows(30, 1, [f"p-{n:02}" for n in range(30)]), "public": rows(80, 2), "test": rows(40, 3)}
    return study_fill(study, parts, schema=schema, levels="HAL")


def registered(study: Study, **fields) -> Encoder:
    file = image_encoder()
    entries = {"name": "small", "content": file.content, "takes": file.takes.to_json(), "licence": "MIT"}
    entries |= {"stated": True, "source": "made by a test"}
    return encoder_register(study=study, acting_user=user_create("olga"), **entries | fields)


def work() -> None:
    """Do the work of workers until everything is encoded."""
    for encoding in Encoding.objects.filter(state="waiting"):
        encoding_work(encoding.pk)


def test_a_run_learns_from_vectors_and_its_file_takes_an_image():
    study = study_of()
    encoder = registered(study)
    chosen = {"encoder": encoder.digest, "representation": "encoder", "representation_parameters": {"components": 4}}
    fields = STEPS_RUN | {"student_learner": "logistic_regression"}
    with pytest.raises(ValidationError, match="has not encoded"):
        run_draft(study, **fields | {"choices": fields["choices"] | chosen})
    for each in Encoding.objects.exclude(dataset__kind="private"):
        encoding_work(each.pk)
    request = chosen | {"sigma": 1.0, "steps": 6, "publish": "model"}
    run = run_finish(run_like(study, fields, choices=request, share=0.9))
    assert run.status == "approved", "nothing about private records is revealed: the run waits for them"
    work()
    private = study.datasets.get(kind="private")
    arrays, key = records_load(private), records_key(encoder.digest)
    with EncoderProcess(image_encoder(), (8, 8, 3)) as process:
        assert (arrays[key] == process.encode(arrays["x"])).all() and arrays[key].shape == (30, 6)
    run = run_finish(run)
    assert run.status == "finished", run.message
    card = run.students.get().card
    assert card["encoder"]["name"] == "small" and card["encoder"]["file_digest"] == encoder.file_digest
    assert card["learner"]["name"] == "linear" and list(replay_faults(run.batches.first())) == []
    olga = user_create("olga")
    encoder_withdraw(encoder=encoder, reason="Its licence ended.", acting_user=olga)
    with pytest.raises(ValidationError, match="does not have this encoder"):
        run_draft(study, **fields | {"choices": fields["choices"] | chosen})
    assert list(replay_faults(run.batches.first())) == [] and key in stored(study), "its models can still be checked"
    later = dataset_import(study=study, name="later", kind="public", rows=images(10, 5), schema=SCHEMA)
    assert not later.encodings.exists()
    rows = images(6, 9).x.astype(np.float32) / np.float32(255)
    found = student_predict(run.students.get(), rows.tolist())
    import onnxruntime

    session = onnxruntime.InferenceSession(model_fetch(run.students.get().onnx))
    on_the_site = pytest.approx(np.array(found["probabilities"]), abs=1e-6)
    assert session.run(["probabilities"], {"image": rows})[0] == on_the_site
    here = LocalModel.of(model_fetch(run.students.get().onnx)).predictions(rows)
    assert here.probabilities == on_the_site and here.labels.tolist() == found["predictions"]


def test_classes_of_test_points_are_read_from_the_file_that_was_written_meanwhile(django_capture_on_commit_callbacks):
    study = study_of()
    looked_at, public = study.datasets.get(kind="test"), study.datasets.get(kind="public")
    encoder = registered(study)
    with django_capture_on_commit_callbacks(execute=True):
        work()
    vectors = points_of(public, encoder.digest)
    fitted = representation_create("encoder", {"components": 4}).fit(vectors)
    points, codes = labelled_points(looked_at, Space(fitted, fitted.transform(vectors), encoder.digest), 10)
    assert points.shape == (10, 4) and set(codes.tolist()) == {0, 1}


def test_erased_removed_and_later_records_are_encoded_as_they_are():
    study, olga = study_of(), user_create("olga")
    alone = dataset_import(study=study, name="alone", kind="private", rows=images(1, 9, ["p-01"]), schema=SCHEMA)
    consent_withdraw(holder=DataHolder.objects.get(study=study, pseudonym="p-01"), acting_user=None)
    records_erase(study.pk)
    encoder = registered(study)
    dataset_remove(dataset=study.datasets.get(kind="test"), reason="Wrong file.", acting_user=olga)
    work()
    states = set(Encoding.objects.values_list("dataset__name", "state"))
    assert states == {("private", "done"), ("alone", "done"), ("public", "done")}, "nothing waits for a removed dataset"
    key, gone = records_key(encoder.digest), DataHolder.objects.filter(study=study, erased_at=None).earliest("pk")
    assert records_load(Dataset.objects.get(pk=alone.pk))[key].shape == (0, encoder.width)
    before = records_load(study.datasets.get(name="private"))
    consent_withdraw(holder=gone, acting_user=None)
    records_erase(study.pk)
    after = records_load(study.datasets.get(name="private"))
    assert gone.pk not in after["holder"] and len(after[key]) == len(after["x"]) == 28
    assert (after[key] == before[key][before["holder"] != gone.pk]).all()
    later = dataset_import(study=study, name="more", kind="public", rows=images(10, 5), schema=SCHEMA)
    assert Encoding.objects.get(dataset=later).state == "waiting"
    encoder_withdraw(encoder=encoder, reason="Another name.", acting_user=olga)
    old = list(Encoding.objects.filter(encoder=encoder))
    registered(study, name="better")
    for each in [*Encoding.objects.exclude(encoder=encoder), *old]:
        encoding_work(each.pk)
    assert key in records_load(Dataset.objects.get(pk=later.pk)), "the same file keeps its vectors"
    assert not Encoding.objects.filter(encoder=encoder).exists()


@pytest.mark.both
def test_a_private_record_on_which_the_encoder_fails_has_zeros_and_the_others_what_they_have_without_it():
    study, takes = study_of(), ImageInput(8, (0.0,) * 3, (1.0,) * 3).to_json()
    with pytest.raises(ValidationError, match="RandomUniform"):
        registered(study, content=noisy_network(), takes=takes)
    encoder = registered(study, content=bright_network(), takes=takes)
    few = images(3, 4, ["p-01", "p-02", "p-03"])
    few.x[1] = 255
    for name, rows in (("three", few), ("two", Rows(few.x[::2], few.y[::2], ["p-01", "p-03"]))):
        dataset_import(study=study, name=name, kind="private", rows=rows, schema=SCHEMA)
    work()
    assert set(Encoding.objects.values_list("state", "message")) == {("done", "")}
    three, two = (records_load(study.datasets.get(name=name)) for name in ("three", "two"))
    key, is_white = records_key(encoder.digest), (three["x"] == 255).all(axis=(1, 2, 3))
    assert is_white.sum() == 1 and (three[key][is_white] == 0).all()
    assert (three[key][~is_white] == two[key]).all() and two[key].all()


def test_an_encoder_whose_vectors_depend_on_other_records_does_not_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check uses no private records, even for private datasets. A failed encoding is tried again after an hour."""
    study, encode = study_of(), EncoderProcess.encode
    registered(study)
    seen: list[np.ndarray] = []

    def drifting(self: EncoderProcess, x: np.ndarray) -> np.ndarray:
        seen.append(x)
        return encode(self, x) * np.float32(1 + 1e-6 * (len(x) > 1))

    monkeypatch.setattr(EncoderProcess, "encode", drifting)
    with pytest.raises(ValidationError, match="depends on which other records"):
        registered(study, name="again", content=image_network(width=5))
    seen.clear()
    work()
    assert set(Encoding.objects.values_list("state", flat=True)) == {"failed"}
    of_private = {record.tobytes() for record in records_load(study.datasets.get(kind="private"))["x"]}
    assert of_private.isdisjoint(record.tobytes() for block in seen for record in block)
    monkeypatch.undo()
    encodings_sweep()
    assert not Encoding.objects.filter(state="waiting").exists()
    Encoding.objects.update(heartbeat=timezone.now() - timedelta(hours=2))
    encodings_sweep()
    work()
    assert set(Encoding.objects.values_list("state", "message")) == {("done", "")}


@pytest.mark.exhaustive
def test_progress_tells_nothing_of_how_many_records_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    study, told = study_of(), {}
    registered(study)
    work()
    encode = EncoderProcess.encode

    def watched(self: EncoderProcess, x: np.ndarray) -> np.ndarray:
        told[number].append(Encoding.objects.get(dataset__name=f"{number} people").progress)
        return encode(self, x)

    monkeypatch.setattr(EncoderProcess, "encode", watched)
    for number in (60, 61):
        told[number] = []
        rows = images(number, number, [f"q-{n}" for n in range(number)])
        dataset_import(study=study, name=f"{number} people", kind="private", rows=rows, schema=SCHEMA)
        work()
    progress = [list(dict.fromkeys(each)) for each in told.values()]
    assert progress == [[tenth / 10 for tenth in range(10)]] * 2


def test_unusable_encoders_are_not_registered():
    study = study_of()
    for fields, field in (
        ({"stated": False}, "stated"),
        ({"content": b"nothing"}, "file"),
        ({"takes": {"kind": "image"}}, "takes"),
        ({"content": image_network(channels=1)}, "file"),
    ):
        with pytest.raises(ValidationError) as error:
            registered(study, **fields)
        assert field in error.value.message_dict
    registered(study)
    with pytest.raises(ValidationError):
        registered(study, name="the same again")
    assert Encoder.objects.count() == 1


def stored(study: Study) -> set[str]:
    """Return the names of all arrays of the study's datasets."""
    return {name for dataset in study.datasets.all() for name in records_load(dataset)}


def test_an_encoder_that_no_run_learned_from_goes_with_its_vectors(django_capture_on_commit_callbacks):
    study, olga = study_of(), user_create("olga")
    encoder = registered(study)
    work()
    assert records_key(encoder.digest) in stored(study)
    chosen = {"encoder": encoder.digest, "representation": "encoder"}
    fields = STEPS_RUN | {"choices": STEPS_RUN["choices"] | chosen, "student_learner": "logistic_regression"}
    draft = run_draft(study, **fields)
    with pytest.raises(ValidationError, match="has not ended"):
        encoder_withdraw(encoder=encoder, reason="Wrong.", acting_user=olga)
    run_withdraw(run=draft, acting_user=user_create("otto"))
    with pytest.raises(ValidationError, match="Enter a reason"):
        encoder_withdraw(encoder=encoder, reason=" ", acting_user=olga)
    with django_capture_on_commit_callbacks(execute=True):
        encoder_withdraw(encoder=encoder, reason="Wrong.", acting_user=olga)
    with pytest.raises(FileNotFoundError):
        arrays_load(encoder.artifact)
    work()
    assert records_key(encoder.digest) not in stored(study) and not Encoding.objects.exists()
    [row] = Disposal.objects.filter(study=study)
    assert (row.kind, row.subject, row.reason, row.recorded_by) == ("encoder", "small", "Wrong.", olga)
    with pytest.raises(ValidationError, match="does not have this encoder"):
        run_draft(study, **fields)
    assert not list(change_faults(study)), "the record of changes contains it"
    again = registered(study, source="looked at again")
    work()
    assert again.pk != encoder.pk and records_key(again.digest) in stored(study)
    assert run_draft(study, **fields).encoder == again.digest


MESSAGES = TabularSchema((TextColumn("message", 40),), ("ham", "spam"))
WORDS = (["see you at home", "at noon then", "call me soon"], ["win a free prize", "free cash now", "a prize for you"])


def messages(number: int, seed: int, holders: list[str] | None = None) -> Rows:
    rng, classes = np.random.default_rng(seed), np.arange(number) % 2
    entries = [f"{WORDS[each][rng.integers(3)]} {rng.integers(99)}" for each in classes]
    return Rows(TextColumn("message", 40).encode(entries), classes.astype(np.int64), holders)


def test_a_run_learns_from_texts_by_an_encoder_and_its_file_takes_a_sentence():
    study, file = study_of("messages"), text_encoder()
    fields = {"content": file.content, "takes": file.takes.to_json(), "tokenizer": file.tokenizer}
    encoder = registered(study, **fields)
    work()
    chosen = {"encoder": encoder.digest, "representation": "encoder", "representation_parameters": {"components": 3}}
    run = run_finish(run_like(study, STEPS_RUN, choices=chosen | {"sigma": 1.0, "steps": 6}, share=0.9))
    assert run.status == "finished", run.message
    model = run.students.get()
    rows = [{"message": text} for text in ("win a prize", "see you soon .", "win win win win a prize . see you", "")]
    found = student_predict(model, rows)
    on_the_site = pytest.approx(np.array(found["probabilities"]), abs=1e-6)
    content = model_fetch(model.onnx)
    import onnxruntime

    session = onnxruntime.InferenceSession(content)
    tokenizer = Tokenizer.from_str(session.get_modelmeta().custom_metadata_map["tokenizer"])
    tokenizer.enable_truncation(file.takes.length)
    said = []
    for row in rows:
        first = tokenizer.encode(row["message"])
        pieces = [first, *first.overflowing]
        shape = (1, len(pieces), max(len(piece.ids) for piece in pieces))
        given = {"input_ids": np.zeros(shape, np.int64), "attention_mask": np.zeros(shape, np.int64)}
        for place, piece in enumerate(pieces):
            given["input_ids"][0, place, : len(piece.ids)] = piece.ids
            given["attention_mask"][0, place, : len(piece.ids)] = 1
        said.append(session.run(["probabilities"], given)[0][0])
    assert np.array(said) == on_the_site
    here = LocalModel.of(content).predictions(rows)
    assert here.probabilities == on_the_site and here.labels.tolist() == found["predictions"]
