"""Noise of a run."""

from common.noise import Noise, SimulationNoise, SystemNoise
from training.models import Run


def noise_of(run: Run) -> Noise:
    """The operating system's; in a rehearsal what its seed says."""
    seed = seed_of(run)
    return SystemNoise() if seed is None else SimulationNoise(seed)


def seed_of(run: Run) -> int | None:
    """Seed of the batch under way, in a rehearsal alone."""
    return (run.seed or 0) * 1_000_003 + run.batches.count() if run.rehearsal else None
