"""Comparison with other libraries that do the same work: processor seconds of one thread in one run, and ratios.

    python -m benchmarks.beside [neighbours steps samples counts rows sums] [--quick]

The other libraries are not requirements of the project, and contenders whose library is missing are left out:
faiss-cpu, opacus, jax-privacy (with jax, chex and optax), opendp, flwr, and mbi, which is
`github.com/ryan112358/private-pgm`. Install them into a separate environment that includes this one; `opacus` needs
`--no-deps`, or pip installs another PyTorch. Contenders take turns five times (once for rows), and their shortest time
is used. Numbers are stored in benchmarks/results/beside.json.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "beside.json"
Row = dict[str, Any]
Work = Callable[[], object]
Contenders = dict[str, tuple[str, Callable[[], Work]]]
"""By name: the package (empty for ours), and the function that prepares the work."""

OURS = "iPATE"
TURNS = 5
COORDINATES, CLASSES, CLIP = 200, 10, 30.0
BATCH, SIDE = 512, 28
CELLS = 1_024
SITES = 5


def neighbours(people: int) -> Contenders:
    """Find all pairs within a radius, for 1,000 queries and records of 64 coordinates."""
    from benchmarks.scaling import contenders

    made = contenders(people, 1_000, CLASSES)
    return {
        OURS: ("", lambda: made["pairs"]),
        "scikit-learn": ("scikit-learn", lambda: made["scikit-learn"]),
        "faiss": ("faiss-cpu", lambda: made["faiss-cpu"]),
    }


def steps(people: int) -> Contenders:
    """Clip all people's gradients and add them up with noise: a linear model, 200 numbers, ten classes.

    Ours also rounds to integers and charges each person's account.
    """
    rng = np.random.default_rng(0)
    x = np.clip(np.rint(rng.normal(0, 9, (people, COORDINATES))), -127, 127).astype(np.int8)
    y = rng.integers(0, CLASSES, people)

    def ours() -> Work:
        from accounting.privacy import IndividualAccounts
        from common.noise import SystemNoise
        from learning.mechanisms.steps.linear import owned_records, release_sums, step_contributions

        mine = owned_records(x, y, np.arange(people), np.arange(people))
        weights = np.zeros((COORDINATES + 1, CLASSES))

        def work() -> None:
            accounts = IndividualAccounts(np.ones(people))
            sums, _ = step_contributions(mine, weights, clip_norm=CLIP, accounts=accounts, sigma=100.0)
            release_sums(sums, 100.0, SystemNoise())

        return work

    def by_opacus() -> Work:
        import torch

        return _opacus_step(torch.nn.Linear(COORDINATES, CLASSES), x.astype(np.float32), y, people)

    def by_jax() -> Work:
        import jax.numpy as jnp

        weights = {"w": jnp.zeros((COORDINATES, CLASSES)), "b": jnp.zeros(CLASSES)}
        return _jax_step(lambda p, one: one @ p["w"] + p["b"], weights, x.astype(np.float32), y, microbatch=6_000)

    return {OURS: ("", ours), "Opacus": ("opacus", by_opacus), "JAX-Privacy": ("jax-privacy", by_jax)}


def samples(people: int) -> Contenders:
    """Take a step on a sample of 512 images of 28×28 pixels, for Tramèr and Boneh's network of 26,010 weights."""
    rng = np.random.default_rng(0)
    size = min(people, BATCH)
    x, y = rng.random((size, SIDE, SIDE), np.float32), rng.integers(0, CLASSES, size)

    def network() -> Any:
        from learning.mechanisms.sampled_steps.networks import network_create

        return network_create("cnn", (SIDE, SIDE), CLASSES)

    def ours() -> Work:
        from benchmarks.sgd_sampled import one_step
        from learning.mechanisms.sampled_steps.rates import SampledMechanism
        from learning.mechanisms.steps.linear import owned_records

        mine = owned_records(x, y, np.arange(size), np.arange(size))
        return one_step(mine, network(), SampledMechanism(np.ones(1), np.array([0.2]), 3.43, 0.2, size))

    def by_jax() -> Work:
        import jax
        import jax.numpy as jnp

        shapes = {"a": (16, 1, 8, 8), "b": (32, 16, 4, 4), "c": (512, 32), "d": (32, CLASSES)}
        weights = {name: jnp.asarray(rng.normal(0, 0.05, shape), jnp.float32) for name, shape in shapes.items()}

        def pooled(maps: Any) -> Any:
            return jax.lax.reduce_window(maps, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")

        def model(p: Any, one: Any) -> Any:
            maps = pooled(jnp.tanh(jax.lax.conv(jnp.pad(one[None, None], _PADDED), p["a"], (2, 2), "VALID")))
            maps = pooled(jnp.tanh(jax.lax.conv(maps, p["b"], (2, 2), "VALID")))
            return jnp.tanh(maps.reshape(1, -1) @ p["c"])[0] @ p["d"]

        return _jax_step(model, weights, x, y, microbatch=64)

    return {
        OURS: ("", ours),
        "Opacus": ("opacus", lambda: _opacus_step(network(), x, y, size)),
        "JAX-Privacy": ("jax-privacy", by_jax),
    }


_PADDED = ((0, 0), (0, 0), (2, 2), (2, 2))


def _opacus_step(network: Any, x: np.ndarray, y: np.ndarray, size: int) -> Work:
    import torch
    from opacus import PrivacyEngine

    images = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    network, optimiser, _ = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.6),
        data_loader=torch.utils.data.DataLoader(images, batch_size=size),
        noise_multiplier=3.43,
        max_grad_norm=0.2,
    )

    def work() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images.tensors[0]), images.tensors[1]).backward()
        optimiser.step()

    return work


def _jax_step(model: Callable[..., Any], weights: Any, x: np.ndarray, y: np.ndarray, microbatch: int) -> Work:
    import jax
    import jax_privacy
    import optax

    def loss(p: Any, one: Any, label: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model(p, one), label)

    together = math.gcd(len(x), microbatch)
    clipped = jax_privacy.clipped_grad(
        loss, l2_clip_norm=0.2, batch_argnums=(1, 2), keep_batch_dim=False, microbatch_size=together
    )

    def stepped(p: Any, key: Any) -> Any:
        leaves, shape = jax.tree.flatten(clipped(p, x, y))
        keys = jax.random.split(key, len(leaves))
        noisy = [leaf + 3.43 * 0.2 * jax.random.normal(one, leaf.shape) for one, leaf in zip(keys, leaves, strict=True)]
        return jax.tree.map(lambda before, found: before - 0.6 * found / len(x), p, jax.tree.unflatten(shape, noisy))

    compiled = jax.jit(stepped)
    return lambda: jax.block_until_ready(compiled(weights, jax.random.key(0)))


def counts(people: int) -> Contenders:
    """Count people in a table of 1,024 cells, with noise. Ours also charges everyone according to their own promise."""
    of = np.random.default_rng(0).integers(0, CELLS, people)

    def ours() -> Work:
        from common.noise import SystemNoise
        from learning.mechanisms.counts.table_plan import CLASSES as BY_CLASS
        from learning.mechanisms.counts.table_plan import CountedColumn, CountsPlan
        from learning.mechanisms.counts.tables import CountsQuestion
        from learning.mechanisms.protocol import Draws, People, Records

        plan = CountsPlan(10.0, 0.0718, float(people), float(people), CELLS)
        question = CountsQuestion(plan, ((CountedColumn(BY_CLASS, tuple(map(str, range(CELLS)))),),), (0.0718,))
        everybody, caps = np.arange(people), np.full(people, 0.0718)
        records = Records(np.zeros((people, 1), np.float32), of, everybody)
        whole, draws = slice(0, 1), Draws(SystemNoise())

        def work() -> None:
            participants = People(everybody, caps, caps, np.zeros(people))
            answer = question.answer(whole, None, participants, lambda: records, alone=True, draws=draws)
            question.release(whole, None, [answer], SystemNoise())

        return work

    def by_opendp() -> Work:
        import opendp.prelude as dp

        dp.enable_features("contrib")
        holders = of.tolist()
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
        counting = space >> dp.t.then_count_by_categories(categories=list(range(CELLS)), MO=dp.L2Distance[int])
        release = counting >> dp.m.then_gaussian(scale=10.0)
        return lambda: release(holders)

    return {OURS: ("", ours), "OpenDP": ("opendp", by_opendp)}


def rows(people: int) -> Contenders:
    """Draw synthetic rows of Adult at ε = 1, by our code and by MST (McKenna, Miklau, Sheldon 2021) from mbi."""
    from benchmarks.sgd.study import splits_load
    from benchmarks.synthesis import draw
    from learning.mechanisms.counts.table_plan import Places, column_names, columns_of
    from learning.mechanisms.protocol import Records

    splits = splits_load("adult")
    private: Any = splits.private[:people]
    schema: Any = splits.schema
    records = Records(private.x, private.y, np.arange(len(private.x)))

    def by_mst() -> Work:
        from benchmarks.marginals_elsewhere import BINS, library_use, mst

        library_use(Path(os.environ["IPATE_MBI"]))
        columns = columns_of(schema, column_names(schema), BINS)
        places = Places(records)
        cells = np.stack([places.cells([column]) for column in columns], axis=1)
        return lambda: mst(cells, columns, 1.0)

    return {OURS: ("", lambda: lambda: draw(schema, records, 1.0, 1)), "mbi, MST": ("mbi", by_mst)}


def sums(people: int) -> Contenders:
    """Compute the masked sum of 7,850 numbers at five sites and the hub. Ours also signs and keeps a ledger."""
    from benchmarks.scaling import NUMBERS, site_sum

    numbers = NUMBERS if people > BATCH else 100
    values = np.arange(numbers, dtype=np.float64)
    return {OURS: ("", lambda: site_sum(SITES, numbers)), "Flower, SecAgg+": ("flwr", lambda: partial(_secagg, values))}


def _secagg(values: np.ndarray) -> np.ndarray:
    """Run a round of SecAgg+ with Flower's own stages: four for each client, and the server's removal of the masks."""
    from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
    from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    client = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    sites, modulus = range(1, SITES + 1), 1 << 32
    chosen = {
        Key.SAMPLE_NUMBER: SITES,
        Key.SHARE_NUMBER: SITES,
        Key.THRESHOLD: SITES // 2 + 1,
        Key.CLIPPING_RANGE: float(values.max()),
        Key.TARGET_RANGE: 1 << 22,
        Key.MOD_RANGE: modulus,
        Key.MAX_WEIGHT: 1.0,
    }
    states = {site: client.SecAggPlusState() for site in sites}
    keys = {}
    for site, state in states.items():
        state.nid = site
        made = client._setup(state, dict(chosen))
        keys[str(site)] = [made[Key.PUBLIC_KEY_1], made[Key.PUBLIC_KEY_2]]
    posted: dict[int, list[tuple[int, bytes]]] = {site: [] for site in sites}
    for site, state in states.items():
        made = client._share_keys(state, dict(keys))
        for to, letter in zip(made[Key.DESTINATION_LIST], made[Key.CIPHERTEXT_LIST], strict=True):
            posted[to].append((site, letter))
    total: list[np.ndarray] = []
    for site, state in states.items():
        mail = {Key.SOURCE_LIST: [of for of, _ in posted[site]], Key.CIPHERTEXT_LIST: [one for _, one in posted[site]]}
        made = client._collect_masked_vectors(state, mail, 1, ndarrays_to_parameters([values]))
        masked = [bytes_to_ndarray(one) for one in made[Key.MASKED_PARAMETERS]]
        total = masked if not total else arithmetic.parameters_addition(total, masked)
    shares: dict[int, list[bytes]] = {site: [] for site in sites}
    for state in states.values():
        made = client._unmask(state, {Key.ACTIVE_NODE_ID_LIST: list(sites), Key.DEAD_NODE_ID_LIST: []})
        for of, share in zip(made[Key.NODE_ID_LIST], made[Key.SHARE_LIST], strict=True):
            shares[of].append(share)
    for of in sites:
        mask = pseudo_rand_gen(combine_shares(shares[of]), modulus, arithmetic.get_parameters_shape(total))
        total = arithmetic.parameters_subtraction(total, mask)
    return arithmetic.parameters_mod(total, modulus)[-1]


PEOPLE = {"neighbours": 60_000, "steps": 60_000, "samples": 60_000, "counts": 1_000_000, "rows": 32_561, "sums": 60_000}


def measured(name: str, quick: bool) -> list[Row]:
    """Return a row for each contender in a part, ours first."""
    from threadpoolctl import threadpool_limits

    people = PEOPLE[name] // 100 if quick else PEOPLE[name]
    made: dict[str, Work] = {}
    contenders: Contenders = globals()[name](people)
    for contender, (package, prepare) in contenders.items():
        if package == "mbi" and "IPATE_MBI" not in os.environ:
            print("mbi: set IPATE_MBI to the folder of its repository")
        elif package and package != "mbi" and not find_spec(_MODULES.get(package, package)):
            print(f"{package} is not installed")
        else:
            made[contender] = prepare()
    seconds: dict[str, list[float]] = {contender: [] for contender in made}
    with threadpool_limits(1):
        for turn in range(1 if name == "rows" else 3 if quick else 1 + TURNS):
            for contender, work in made.items():
                clock = time.process_time()
                work()
                if turn or name == "rows":  # the first run compiles and fills caches
                    seconds[contender].append(time.process_time() - clock)
    found = []
    for contender, times in seconds.items():
        package = contenders[contender][0]
        found.append(
            {
                "contender": contender,
                "version": version(package) if package not in ("", "mbi") else "",
                "cpu_seconds": round(min(times), 5),
            }
        )
    for row in found:
        row["times_ours"] = round(row["cpu_seconds"] / found[0]["cpu_seconds"], 2)
    return found


_MODULES = {"scikit-learn": "sklearn", "faiss-cpu": "faiss", "jax-privacy": "jax_privacy"}


def main() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    from benchmarks.neighbours.__main__ import parts_of_arguments, table

    names, quick = parts_of_arguments(__doc__, PEOPLE)
    for name in names:
        rows = measured(name, quick)
        print(f"\n{name}: {globals()[name].__doc__}")
        table(rows)
        if not quick:
            kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(kept | {name: rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
