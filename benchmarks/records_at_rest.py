"""Cost of encryption at rest: people's records with a key for each person and in plain files, measured in turns.

    python -m benchmarks.records_at_rest [PEOPLE …]

One row of 100 numbers per person. Medians of processor time.
"""

import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

WIDTH, REPEATS = 100, 5


def main(sizes: list[int]) -> None:
    os.environ |= {"DJANGO_SETTINGS_MODULE": "ipate_web.settings", "IPATE_VAR_DIR": tempfile.mkdtemp()}
    import django

    django.setup()
    print("| people | | plain | encrypted | ratio |\n|---|---|---|---|---|")
    for people in sizes:
        for name, (plain, sealed) in _measured(people).items():
            ratio = f"{sealed / plain:.1f}" if plain else "–"
            print(f"| {people:,} | {name} | {1000 * plain:.0f} ms | {1000 * sealed:.0f} ms | {ratio} |", flush=True)


def _measured(people: int) -> dict[str, tuple[float, float]]:
    """Return medians in seconds for plain and encrypted files."""
    from django.core.files.base import ContentFile
    from django.core.files.storage import FileSystemStorage

    from common.keyrings import keys_destroy
    from training.engine.records import records_load, records_store, ring_of
    from training.models import Dataset

    storage, rng = FileSystemStorage(tempfile.mkdtemp()), np.random.default_rng(1)

    def save(arrays: dict[str, np.ndarray]) -> str:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return storage.save("plain", ContentFile(buffer.getvalue()))

    def load(name: str, holders: np.ndarray | None = None) -> dict[str, np.ndarray]:
        with storage.open(name) as file, np.load(file, allow_pickle=False) as arrays:
            mine = slice(None) if holders is None else np.isin(arrays["holder"], holders)
            return {key: arrays[key][mine] for key in arrays.files}

    content = {
        "x": rng.normal(size=(people, WIDTH)),
        "y": rng.integers(0, 2, people),
        "holder": rng.permutation(people) + 10**6,
    }
    shard = np.sort(content["holder"])[: people // 20]
    left = {name: array[content["holder"] != shard[0]] for name, array in content.items()}
    times: dict[str, tuple[list[float], list[float]]] = {}

    def timed(name: str, plain: Callable[[], Any], sealed: Callable[[], Any]) -> tuple[Any, Any]:
        results = []
        for work, found in zip((plain, sealed), times.setdefault(name, ([], [])), strict=True):
            begun = time.process_time()
            results.append(work())
            found.append(time.process_time() - begun)
        return results[0], results[1]

    for _ in range(REPEATS):
        file, (artifact, _digest) = timed("store all", partial(save, content), partial(records_store, content))
        dataset = Dataset(artifact=artifact)
        timed("read all", partial(load, file), partial(records_load, dataset))
        timed("read one person in twenty", partial(load, file, shard), partial(records_load, dataset, holders=shard))
        timed("store without one", partial(save, left), partial(records_store, left, before=artifact))
        timed("destroy a key", lambda: None, partial(keys_destroy, ring_of(artifact), [int(shard[0])]))
        storage.delete(file)
    return {name: (statistics.median(plain), statistics.median(sealed)) for name, (plain, sealed) in times.items()}


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [10_000, 100_000, 1_000_000])
