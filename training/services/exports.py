"""Files of a published version: its plain weights, and ONNX, which runs."""

from dataclasses import dataclass
from typing import Any

from common.artifacts import model_fetch, model_store
from learning.calibration import CalibratedModel, Calibration
from learning.formats import schema_from_json
from learning.learners import Model
from learning.published import published_format, published_load
from learning.students import said
from training.engine.records import encoder_load, encoder_of
from training.models import Run, StudentModel


@dataclass(frozen=True)
class ModelFile:
    """A file of a version.

    Attributes:
        format: Which is its suffix, too: "onnx", "skops" or "safetensors".
        digest: SHA-256, hexadecimal.
        artifact: In the models storage.
    """

    format: str
    digest: str
    artifact: str


def onnx_store(artifact: str, model: Model, run: Run, card: dict[str, Any]) -> tuple[str, str]:
    """Store a model as ONNX beside its own file; the name of the new one, and its SHA-256."""
    from learning.exports.files import onnx_file  # loads ONNX, which only workers and few requests need

    name = f"{artifact}.onnx"
    encoder = encoder_of(run)
    file = None if encoder is None else encoder_load(encoder)
    return name, model_store(name, onnx_file(model, schema_from_json(run.schema), card, file))


def version_load(version: StudentModel) -> Model:
    """The model of a version with its calibration, as everybody who asks it gets it."""
    model = published_load(version.learner, model_fetch(version.artifact))
    calibrated = CalibratedModel(model, Calibration.from_json(version.calibration))
    return calibrated if version.is_released_itself else said(calibrated, version.run.learns)


def file_native(version: StudentModel) -> ModelFile:
    """The file that the version was stored as."""
    return ModelFile(published_format(version.learner), version.digest, version.artifact)


def file_onnx(version: StudentModel) -> ModelFile:
    """The version as ONNX; versions from before there was ONNX get theirs when it is first asked for."""
    if not version.onnx:
        model = version_load(version)
        version.onnx, version.onnx_digest = onnx_store(version.artifact, model, version.run, version.card)
        version.save(update_fields=["onnx", "onnx_digest"])
    return ModelFile("onnx", version.onnx_digest, version.onnx)
