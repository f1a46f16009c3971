"""Checks of every proposal in which each holder is asked."""

from collections.abc import Callable
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from learning.mechanisms.choices import Choices
from learning.representations import REPRESENTATIONS
from training.models import Run

_TEACHERS_FIELDS = ("learner", "learner_parameters", "aggregator", "teachers")
Chosen = TypeVar("Chosen", bound=Choices)


def choices_check(
    run: Run, wrong: Callable[[str, object], None], from_json: Callable[[dict[str, Any]], Chosen]
) -> Chosen | None:
    """Note what is wrong with ``asking`` and with fields of teachers; the choices, or None where they say nothing."""
    for name in _TEACHERS_FIELDS:
        if getattr(run, name):
            wrong(name, _("There are no teachers where every holder is asked. Leave this out."))
    try:
        chosen = from_json(run.asking)
    except (ValueError, TypeError) as error:
        wrong("asking", error)
        return None
    run.asking = chosen.to_json()
    is_table = bool(run.private_dataset_id) and run.private_dataset.schema["kind"] == "table"
    if is_table and chosen.representation and REPRESENTATIONS[chosen.representation].images:
        wrong("asking", _("This representation is for images. Choose another one."))
    return chosen
