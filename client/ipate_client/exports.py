"""Exports of models to MLflow, skops and the Hugging Face Hub, with their privacy promises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ipate_client.rows import features_of

if TYPE_CHECKING:
    from ipate_client.local_model import LocalModel

_TASKS = {"LocalClassifier": "classification", "LocalLabeller": "classification"}
_EXAMPLE = """```python
from ipate_client import LocalModel

model = LocalModel.load("model.onnx")  # pip install "ipate-client[models]"
model.predict(rows)
```"""


def hub_folder(model: LocalModel, folder: str | Path, *, licence: str, title: str = "") -> Path:
    """Write a model as a Hugging Face Hub repository: model.onnx, card.json, schema.json and README.md.

    Args:
        model: The model.
        folder: A new or empty folder.
        licence: Identifier of the model's licence, such as “cc-by-4.0”, or “other”.
        title: Heading of the model card; by default the title or id of the model's run.

    Raises:
        FileExistsError: the folder is not empty.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise FileExistsError(f"The folder {place} is not empty.")
    heading = title or str(model.card.get("title") or f"Model of run {model.card.get('run', '')}".strip())
    documents = {"card.json": model.card, "schema.json": model.schema}
    (place / "model.onnx").write_bytes(model.content)
    for name, document in documents.items():
        (place / name).write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", "utf-8")
    (place / "README.md").write_text(_model_card(model, heading, licence), "utf-8")
    return place


def mlflow_model(model: LocalModel, path: str | Path) -> Path:
    """Write a model in MLflow's ONNX flavour, with a signature, and with the card and the privacy promise as metadata.

    Load it with ``mlflow.pyfunc.load_model`` and pass a dictionary with an array for each column.

    Args:
        model: The model.
        path: A new folder.
    """
    try:
        import mlflow.onnx
        import onnx
        from mlflow.models import ModelSignature
        from mlflow.types import Schema, TensorSpec
    except ImportError:
        raise ImportError("MLflow's format needs more packages: pip install ipate-client[mlflow]") from None
    session = model._session
    inputs = [TensorSpec(_kind(each.type), _shape(each.shape), each.name) for each in session.get_inputs()]
    outputs = [TensorSpec(_kind(each.type), _shape(each.shape), each.name) for each in session.get_outputs()]
    mlflow.onnx.save_model(
        onnx.load_from_string(model.content),
        str(path),
        signature=ModelSignature(Schema(inputs), Schema(outputs)),
        metadata={"privacy": privacy_of(model), "card": model.card, "schema": model.schema},
        pip_requirements=["onnxruntime>=1.19"],
        save_as_external_data=False,
    )
    return Path(path)


def skops_file(model: LocalModel, path: str | Path) -> Path:
    """Write a model in the skops format, as a scikit-learn estimator.

    Load it with ``skops.io.load(path, trusted=[…])``, where the list contains the name of the model's class, such as
    ``ipate_client.local_model.LocalClassifier``. This is the only type in the file that skops does not trust.

    Args:
        model: The model.
        path: File to write.
    """
    try:
        from skops.io import dump
    except ImportError:
        raise ImportError("The format of skops needs more packages: pip install ipate-client[skops]") from None
    dump(model, path)
    return Path(path)


def privacy_of(model: LocalModel) -> dict[str, Any]:
    """Return a model's privacy promise from its card: the ε of each group, δ, unit, method, and largest ε."""
    privacy = model.card.get("privacy") or {}
    groups = [dict(each) for each in privacy.get("groups") or [] if isinstance(each, Mapping)]
    epsilons = [each["epsilon"] for each in groups if each.get("epsilon") is not None]
    named = {name: privacy[name] for name in ("delta", "unit", "neighbours", "method", "variant") if name in privacy}
    return {"epsilon": max(epsilons, default=None), **named, "groups": groups, "note": privacy.get("note", "")}


def _model_card(model: LocalModel, heading: str, licence: str) -> str:
    """Return README.md with its YAML metadata. Values are written as JSON, which is a subset of YAML."""
    privacy, evaluation = privacy_of(model), model.card.get("evaluation") or {}
    kind = "image" if model.schema["kind"] == "image" else "tabular"
    kind = "text" if any(column["role"] == "text" for column in features_of(model.schema)) else kind
    task = f"{kind}-{_TASKS.get(type(model).__name__, 'regression')}"
    metadata: dict[str, Any] = {
        "license": licence,
        "library_name": "onnx",
        "pipeline_tag": task,
        "tags": ["differential-privacy", "ipate", *([privacy["method"]] if "method" in privacy else [])],
        "privacy": privacy,
    }
    if evaluation.get("accuracy") is not None:
        measured = [{"type": "accuracy", "value": evaluation["accuracy"]}]
        dataset = {"name": "Test dataset of the study", "type": "private"}
        results = [{"task": {"type": task}, "dataset": dataset, "metrics": measured}]
        metadata["model-index"] = [{"name": heading, "results": results}]
    lines = [f"{name}: {_yaml(value)}" for name, value in metadata.items()]
    columns = "".join(f"- {column['name']}\n" for column in features_of(model.schema))
    parts = [
        "---\n" + "\n".join(lines) + "\n---\n",
        f"# {heading}\n",
        f"It predicts: {', '.join(model.columns)}.\n" + (f"\nColumns of a row:\n\n{columns}" if columns else ""),
        f"## Privacy\n\n{_statement(privacy)}",
        *([_evaluated(evaluation)] if evaluation.get("accuracy") is not None else []),
        *(f"**Caution.** {_sentence(each)}\n" for each in model.card.get("cautions") or []),
        f"## Use\n\n{_EXAMPLE}\n",
    ]
    return "\n".join(parts)


def _yaml(value: Any) -> str:
    """Return a value as JSON that YAML reads in the same way, because YAML would read 1e-05 as a string."""
    return re.sub(r"(?<=[ \[][0-9])e-", ".0e-", json.dumps(value, ensure_ascii=False))


def _statement(privacy: Mapping[str, Any]) -> str:
    if not privacy["groups"] or privacy["epsilon"] is None:
        return f"{privacy['note'] or 'The card states no privacy promise.'}\n"
    delta = f", δ = {privacy['delta']:g}" if "delta" in privacy else ""
    unit, neighbours = privacy.get("unit", "data holder"), privacy.get("neighbours", "")
    rows = "".join(f"| {group.get('level', '')} | {group['epsilon']:g} |\n" for group in privacy["groups"])
    text = f"The model is differentially private for each {unit}{delta}"
    return f"{text}{f' ({neighbours})' if neighbours else ''}.\n\n| Level | ε |\n|---|---|\n{rows}"


def _evaluated(evaluation: Mapping[str, Any]) -> str:
    majority = (evaluation.get("majority") or {}).get("share")
    beside = "" if majority is None else f"; always predicting the most frequent class: {majority:g}"
    if evaluation.get("balanced_accuracy") is not None:
        beside += f"; balanced accuracy: {evaluation['balanced_accuracy']:g}"
    return f"## Evaluation\n\nAccuracy on the study's test dataset: {evaluation['accuracy']:g}{beside}.\n"


def _sentence(stored: Mapping[str, Any]) -> str:
    """Return a sentence that the card stores as a template with values."""
    return str(stored["template"] % stored["values"])


def _kind(name: str) -> np.dtype[Any]:
    """Return the NumPy type for an ONNX Runtime type."""
    kinds = {"double": "float64", "float": "float32", "uint8": "uint8", "int64": "int64", "string": "str"}
    return np.dtype(kinds[name.removeprefix("tensor(").removesuffix(")")])


def _shape(shape: list[Any]) -> tuple[int, ...]:
    return tuple(side if isinstance(side, int) else -1 for side in shape)
