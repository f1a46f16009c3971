"""Check of the choices of a proposal, by the dataclass of its method."""

from collections.abc import Callable
from typing import TypeVar

from django.utils.translation import gettext as _

from learning.formats import ImageSchema, TabularSchema, schema_from_json
from learning.mechanisms.choices import Choices, ChoicesError, HolderChoices
from learning.representations import REPRESENTATIONS
from training.models import Encoder, Encoding, Run

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
    if chosen is None or not run.private_dataset_id:
        return chosen
    schema = schema_from_json(run.private_dataset.schema)
    is_image, is_text = isinstance(schema, ImageSchema), isinstance(schema, TabularSchema) and schema.text is not None
    if chosen.encoder:
        _encoder_check(run, chosen.encoder, wrong)
    elif chosen.representation:
        named = REPRESENTATIONS[chosen.representation]
        if named.images and not is_image:
            wrong("choices.representation", _("This representation is for images. Choose another one."))
        elif named.texts != is_text:
            wrong("choices.representation", _("This representation is not for such records. Choose another one."))
    if is_text and run.public_dataset_id is None:
        wrong("public_dataset", _("Texts are described by public texts. Choose some."))
    return chosen


def _encoder_check(run: Run, digest: str, wrong: Callable[[str, object], None]) -> None:
    """Note what stands in the way of a run with an encoder: it is not there, or its public datasets are not encoded.

    For those of private records the run waits: whether they are encoded yet may follow from a single one.
    """
    if run.alliance_id:
        # Vectors of the same points differ in their last bits between machines, and so would the sites' questions.
        return wrong("choices.encoder", _("A run over sites learns from records as they are. Choose no encoder."))
    encoder = Encoder.objects.filter(study=run.study_id, digest=digest, withdrawn_at=None).first()
    if encoder is None:
        return wrong("choices.encoder", _("The study has no such encoder. Register it first."))
    if run.public_dataset_id is None:
        return wrong("choices.encoder", _("With an encoder a run needs public points. Choose some."))
    done = set(encoder.encodings.filter(state=Encoding.State.DONE).values_list("dataset", flat=True))
    for field in ("public_dataset", "test_dataset", "labelled_dataset"):
        dataset = getattr(run, field)
        if dataset is not None and dataset.pk not in done:
            names = {"name": dataset.name}
            wrong(field, _("The encoder has not encoded “%(name)s”. Look at the page of encoders.") % names)
