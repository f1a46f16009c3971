"""The noise of a run in which every holder is asked."""

from common.noise import Noise, SimulationNoise, SystemNoise
from training.models import Run


def noise_of(run: Run) -> Noise:
    """The operating system's; in a rehearsal what its seed says."""
    if run.rehearsal:
        return SimulationNoise((run.seed or 0) * 1_000_003 + run.batches.count())
    return SystemNoise()
