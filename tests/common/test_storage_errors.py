"""An S3 storage that does not answer, which tells so in its own words."""

import numpy as np
import pytest
from django.test import override_settings

from common.artifacts import (
    arrays_delete,
    arrays_digest,
    arrays_list,
    arrays_load,
    arrays_save,
    model_fetch,
    model_store,
)

pytest.importorskip("storages.backends.s3", reason="django-storages[s3] is not installed")

#: Nobody listens there.
NOWHERE = {
    "BACKEND": "storages.backends.s3.S3Storage",
    "OPTIONS": {
        "bucket_name": "away",
        "endpoint_url": "http://127.0.0.1:9",
        "access_key": "none",
        "secret_key": "none",
        "region_name": "us-east-1",
    },
}


@override_settings(STORAGES={"private": NOWHERE, "models": NOWHERE})
@pytest.mark.parametrize(
    "work",
    [
        lambda: arrays_save("a.npz", one=np.ones(1)),
        lambda: arrays_load("a.npz"),
        lambda: arrays_digest("a.npz"),
        lambda: arrays_delete("a.npz"),
        lambda: arrays_list("folder"),
        lambda: model_store("model", b"weights"),
        lambda: model_fetch("model"),
    ],
)
def test_a_storage_that_is_away_is_an_os_error_like_any_other(work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(OSError, match="did not answer"):
        work()
