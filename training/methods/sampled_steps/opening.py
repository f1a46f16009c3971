"""Opening of a run of steps over samples: inputs and first weights, from public values alone."""

from uuid import uuid4

import numpy as np

from common.artifacts import arrays_save
from learning.mechanisms.sampled_steps.choices import Samples
from learning.outcomes import target_arrays
from learning.representations import representation_save
from training.engine.files import rounds_folder
from training.methods.sampled_steps.planning import inputs_of
from training.models import Round, Run


def round_open(run: Run) -> Round:
    """The only round of a run, in a new file; the caller's transaction writes the row. Nothing private is looked at."""
    from learning.mechanisms.sampled_steps.network_states import steps_begin  # PyTorch takes a second to import

    planned, inputs = run.plan["rounds"][0]["plan"], inputs_of(run, Samples.from_json(run.choices))
    outcome = run.learns
    classes = outcome.outputs
    begin = steps_begin(planned["network"], inputs.shape, classes, seed=run.seed or 0)
    artifact = f"{rounds_folder(run)}/0-{uuid4().hex[:12]}.npz"
    stored = b"" if inputs.space is None else representation_save(inputs.space.fitted)
    arrays_save(
        artifact,
        representation=np.frombuffer(stored, dtype=np.uint8),
        shape=np.array(inputs.shape),
        scale=np.array(inputs.scale),
        classes=np.array(classes),
        **target_arrays(outcome),
        **begin.to_arrays(),
    )
    return Round(
        run=run,
        index=0,
        representation=inputs.sentence.to_json(),
        artifact=artifact,
        sigma=planned["sigma"],
        size=planned["steps"],
    )
