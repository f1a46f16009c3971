"""Descriptions of published files: what a record is, what the file holds, and a program that loads it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from learning.exports import loaders
from learning.formats import ImageSchema, Schema
from learning.formats.columns import CategoricalColumn, FeatureColumn, Icd9Column, NumericColumn
from learning.published import published_loader

ONNX_LAYOUT = (
    "From the values of a row to the name of a class; opset 21 and ai.onnx.ml 5. A table has an input per column, "
    "(n,): numbers as double with NaN where not known, all else as text; images have the input “image”, float (n, "
    "height, width) or (n, height, width, channels) between 0 and 1. Outputs: “label”, the class, and "
    "“probabilities”, double (n, classes). A row that the schema does not allow has the label “” and "
    "probabilities NaN. The metadata hold “classes”, “schema” and “card” as JSON."
)
ONNX_LOADER = "onnx"
_LAYOUTS = {
    "estimator": (
        "A dictionary: “estimator”, a fitted scikit-learn classifier over records laid flat; “classes”, their number, "
        "of which the estimator knows those in classes_; “shape” of a record. skops has to be told to trust the "
        "compiled trees of scikit-learn."
    ),
    "cnn": (
        "The state of a PyTorch network, and record_shape. Convolution 3×3, ReLU, batch norm, max pool 2×2; then laid "
        "flat with the channels last (row, column, filter); dense 100, ReLU, batch norm; dense, logits."
    ),
    "consistency": (
        "The state of a PyTorch Sequential by place, and record_shape. Convolutions 5×5 of 16 (stride 2 from 16 pixels "
        "on), 3×3 of 32 and 64, each with batch norm and ReLU, then max pool 2×2 where maps have 4 pixels or more; "
        "laid flat with the channels first; dense 128, batch norm, ReLU; dense, logits."
    ),
    "steps": (
        "Weights of a linear model or a network, and the representation that records enter by, if any: an npz file in "
        "bytes, with matrix and offset from whole-number features to coordinates, and how features are made."
    ),
}


def loader_text(name: str) -> str:
    """The program of this name, as it stands."""
    return files(loaders).joinpath(f"{name}.py").read_text("utf-8")


def file_layout(learner: str) -> str:
    """Contents of the file of a learner."""
    return _LAYOUTS[published_loader(learner)]


def record_description(schema: Schema) -> dict[str, Any]:
    """Description of an encoded record: the array that models in skops and safetensors take, number by number.

    >>> from learning.formats import TabularSchema
    >>> described = record_description(TabularSchema((NumericColumn("age", 0, 100),), ("no", "yes")))
    >>> described["shape"], described["features"][0]["value"]
    ([1], '(clip(x, 0, 100) - 0) / 100')
    """
    if isinstance(schema, ImageSchema):
        text = "float32 (n, height, width), or (n, height, width, channels) where there are several; pixels from 0 to 1"
        return {"shape": list(schema.shape), "array": text, "features": []}
    features = [
        {"name": name, "column": column.name, "value": value}
        for column in schema.features
        for name, value in zip(column.features, _values(column), strict=True)
    ]
    return {"shape": list(schema.shape), "array": "float32 (n, features), in this order", "features": features}


def _values(column: FeatureColumn) -> list[str]:
    """Rules by which the numbers of a column follow from its value x."""
    match column:
        case NumericColumn():
            low, width = column.minimum, column.maximum - column.minimum
            scaled = f"(clip(x, {low}, {column.maximum}) - {low}) / {width}"
            markers = " or ".join(f"“{marker}”" for marker in column.missing)
            return [f"{scaled}; 0 if x is {markers}", f"1 if x is {markers}, else 0"] if markers else [scaled]
        case CategoricalColumn():
            known = [f"1 if x is “{value}”, else 0" for value in column.values]
            markers = "".join(f", “{marker}”" for marker in column.missing)
            return [*known, f"1 if x is none of the others{markers}, else 0"] if column.other else known
        case Icd9Column():
            return [f"1 if x is an ICD-9 code of “{name.split(' = ')[1]}”, else 0" for name in column.features]
    raise TypeError(f"A column {type(column).__name__} has no description.")
