"""Outcomes that can be learned from a record: declared in a schema, predicted by a model. Does not import Django."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from common.sentences import gettext_noop
from learning.outcomes.labels import CROSS_ENTROPY, Classes, Labels
from learning.outcomes.numbers import Numbers
from learning.outcomes.outcome import Codes, Loss, Measure, Outcome, Target
from learning.outcomes.times import Times

OUTCOME_LABELS = {
    Classes.kind: gettext_noop("classes"),
    Numbers.kind: gettext_noop("numbers"),
    Times.kind: gettext_noop("times to an event"),
    Labels.kind: gettext_noop("several labels per record"),
}
"""Human-readable names of outcomes."""

KINDS = tuple(OUTCOME_LABELS)
"""Keys of all outcomes in schemas and methods."""

AnyTarget = Annotated[Numbers | Times | Labels, Field(discriminator="kind")]
_TARGET: TypeAdapter[Numbers | Times | Labels] = TypeAdapter(AnyTarget)


def target_from_json(document: Mapping[str, Any]) -> Target:
    """Return the target from the result of `Target.to_json`.

    Raises:
        ValueError: The document declares an impossible target.

    >>> target_from_json(Numbers(0, 300, "mmHg").to_json())
    Numbers(minimum=0, maximum=300, unit='mmHg')
    """
    return _TARGET.validate_python(document)


def target_arrays(outcome: Outcome) -> dict[str, NDArray[np.uint8]]:
    """Return the target as arrays for a question's file, readable by `target_from_arrays`; empty for classes."""
    if not isinstance(outcome, Target):
        return {}
    return {"target": np.frombuffer(json.dumps(outcome.to_json()).encode(), np.uint8)}


def target_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Target | None:
    """Return the target that `target_arrays` stored among other arrays; None for classes."""
    return target_from_json(json.loads(arrays["target"].tobytes())) if "target" in arrays else None
