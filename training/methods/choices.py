"""Check of the choices of a proposal, by the dataclass of its method."""

from collections.abc import Callable
from typing import TypeVar

from django.utils.translation import gettext as _

from learning.mechanisms.choices import Choices, ChoicesError, HolderChoices
from learning.representations import REPRESENTATIONS
from training.models import Run

Chosen = TypeVar("Chosen", bound=Choices)
Held = TypeVar("Held", bound=HolderChoices)


def choices_check(run: Run, wrong: Callable[[str, object], None], kind: type[Chosen]) -> Chosen | None:
    """Note what is wrong with the choices of a proposal; with their defaults filled in, or None where they say nothing.

    Args:
        run: The proposal.
        wrong: See `training.methods.base.Wrong`; of a choice the field is dotted, "choices.sigma".
        kind: The choices of the run's method.
    """
    try:
        chosen = kind.from_json(run.choices)
    except ChoicesError as error:
        for name, message in error.faults:
            wrong(f"choices.{name}" if name else "choices", _(message))
        return None
    run.choices = chosen.to_json()
    return chosen


def holder_choices_check(run: Run, wrong: Callable[[str, object], None], kind: type[Held]) -> Held | None:
    """As `choices_check`, and whether the records go with the representation."""
    chosen = choices_check(run, wrong, kind)
    is_table = bool(run.private_dataset_id) and run.private_dataset.schema["kind"] == "table"
    if chosen and is_table and chosen.representation and REPRESENTATIONS[chosen.representation].images:
        wrong("choices.representation", _("This representation is for images. Choose another one."))
    return chosen
