"""Files at rest are read as they were stored, or not at all."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import override_settings

from common import artifacts, sealed_storage
from common.sealed_storage import SealedStorage, SealError

BLOCK = sealed_storage._BLOCK


@pytest.fixture
def storage(tmp_path: Path) -> SealedStorage:
    return SealedStorage("django.core.files.storage.FileSystemStorage", {"location": str(tmp_path)})


def test_a_file_is_read_back_completely_and_from_any_position(storage: SealedStorage, tmp_path: Path) -> None:
    for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 17):
        for kind in (ContentFile, lambda content: SimpleUploadedFile("upload", content)):
            content = os.urandom(size)
            name = storage.save("folder/file", kind(content))
            assert storage.size(name) == size
            with storage.open(name) as file:
                assert file.read() == content
                for start in {0, size // 2, max(0, size - 3), max(0, BLOCK - 5)}:
                    file.seek(start)
                    assert file.read(11) == content[start : start + 11]
            stored = (tmp_path / name).read_bytes()
            assert size < 20 or content[:20] not in stored
            assert b"".join(storage.open(name).chunks()) == content


@pytest.mark.parametrize("size", [0, 5, BLOCK, 2 * BLOCK])
def test_changed_or_cut_content_is_found(storage: SealedStorage, tmp_path: Path, size: int) -> None:
    storage.save("file", ContentFile(os.urandom(size)))
    path, whole = tmp_path / "file", (tmp_path / "file").read_bytes()
    spoiled = {place: bytearray(whole) for place in (0, 20, 60, len(whole) - 1)}
    for place, copy in spoiled.items():
        copy[place] ^= 1
    cut = [whole[:-1], whole[: len(whole) - 16], whole[:40], b"", whole[: -(BLOCK + 16)], whole + b"\0"]
    for copy in [*spoiled.values(), *cut]:
        path.write_bytes(copy)
        with pytest.raises(SealError), storage.open("file") as file:
            file.read()


def test_an_object_store_keeps_and_replaces_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3  # here, so that collecting tests does not load it
    import moto

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "try")
    with moto.mock_aws():
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="keys")
        options = {"bucket_name": "keys", "region_name": "us-east-1"}
        storage = SealedStorage("storages.backends.s3.S3Storage", options)
        for content in (os.urandom(2 * BLOCK + 5), b"another"):
            storage.replace("ring", ContentFile(content))
            assert storage.open("ring").read() == content and storage.size("ring") == len(content)
        storage.rewrap("ring")
        assert storage.open("ring").read() == b"another" and storage.listdir("")[1] == ["ring"]
        with pytest.raises(FileNotFoundError):
            storage.open("nothing")


def test_no_file_can_replace_another(storage: SealedStorage, tmp_path: Path) -> None:
    storage.save("mine", ContentFile(b"mine"))
    (tmp_path / "yours").write_bytes((tmp_path / "mine").read_bytes())
    with pytest.raises(SealError):
        storage.open("yours")


def test_a_new_key_for_records_replaces_the_old(storage: SealedStorage, settings: Any) -> None:
    settings.RECORDS_KEY = "old" * 20
    storage.save("file", ContentFile(b"content"))
    settings.RECORDS_KEY, settings.RECORDS_KEY_FALLBACKS = "new" * 20, ["old" * 20]
    storage.rewrap("file")
    settings.RECORDS_KEY_FALLBACKS = []
    assert storage.open("file").read() == b"content"
    settings.RECORDS_KEY = "old" * 20
    with pytest.raises(SealError, match="IPATE_RECORDS_KEY_FALLBACKS"):
        storage.open("file")


#: No process listens there.
AWAY = {"bucket_name": "away", "endpoint_url": "http://127.0.0.1:9", "access_key": "none", "secret_key": "none"}
NOWHERE = {"BACKEND": "storages.backends.s3.S3Storage", "OPTIONS": AWAY | {"region_name": "us-east-1"}}


@override_settings(STORAGES={"private": NOWHERE, "models": NOWHERE})
def test_an_unavailable_storage_raises_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for work in (
        lambda: artifacts.arrays_save("a.npz", one=np.ones(1)),
        lambda: artifacts.arrays_load("a.npz"),
        lambda: artifacts.arrays_digest("a.npz"),
        lambda: artifacts.arrays_delete("a.npz"),
        lambda: artifacts.arrays_list("folder"),
        lambda: artifacts.model_store("model", b"weights"),
        lambda: artifacts.model_fetch("model"),
    ):
        with pytest.raises(OSError, match="is unavailable"):
            work()
