"""Files of a published version: as it was stored, and as ONNX; each described so that others can use it."""

from dataclasses import dataclass
from typing import Any

from common.artifacts import model_fetch, model_store
from learning.formats import Schema, schema_from_json
from learning.learners import Model
from learning.published import published_format, published_load, published_loader
from training.models import StudentModel


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


def onnx_store(artifact: str, model: Model, schema: dict[str, Any], card: dict[str, Any]) -> tuple[str, str]:
    """Store a model as ONNX beside its own file; the name of the new one, and its SHA-256."""
    from learning.exports.files import onnx_file  # loads ONNX, which only workers and few requests need

    name = f"{artifact}.onnx"
    return name, model_store(name, onnx_file(model, schema_from_json(schema), card))


def file_native(version: StudentModel) -> ModelFile:
    """The file that the version was stored as."""
    return ModelFile(published_format(version.learner), version.digest, version.artifact)


def file_onnx(version: StudentModel) -> ModelFile:
    """The version as ONNX; versions from before there was ONNX get theirs when it is first asked for."""
    if not version.onnx:
        model = published_load(version.learner, model_fetch(version.artifact))
        version.onnx, version.onnx_digest = onnx_store(version.artifact, model, version.run.schema, version.card)
        version.save(update_fields=["onnx", "onnx_digest"])
    return ModelFile("onnx", version.onnx_digest, version.onnx)


def files_described(version: StudentModel) -> list[dict[str, Any]]:
    """Both files, the one that needs least first: what they hold, what they take, and a program that loads them.

    Their SHA-256 is None where there is no file before somebody asks for it.
    """
    from learning.exports.descriptions import ONNX_LAYOUT, ONNX_LOADER, file_layout, loader_text, record_description

    schema: Schema = schema_from_json(version.run.schema)
    native = file_native(version)
    return [
        {
            "format": "onnx",
            "sha256": version.onnx_digest or None,
            "record": {"shape": list(schema.shape), "array": "values of a row, as the schema says", "features": []},
            "layout": ONNX_LAYOUT,
            "loader": loader_text(ONNX_LOADER),
        },
        {
            "format": native.format,
            "sha256": native.digest,
            "record": record_description(schema),
            "layout": file_layout(version.learner),
            "loader": loader_text(published_loader(version.learner)),
        },
    ]
