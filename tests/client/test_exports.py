"""Models in the formats of others."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from ipate_client import LocalModel

from learning.formats import TabularSchema
from learning.formats.columns import CategoricalColumn, NumericColumn
from learning.learners import learner_create

ROWS = [{"age": float(age), "smoker": ("no", "yes")[age % 2]} for age in range(0, 100, 5)]
GROUPS = [{"level": "HIGH", "epsilon": 0.5}, {"level": "LOW", "epsilon": 2.0}]
CARD = {"run": "abc", "privacy": {"unit": "data holder", "delta": 1e-5, "method": "pate", "groups": GROUPS}}


@pytest.fixture(scope="module")
def model() -> LocalModel:
    from learning.exports.files import onnx_file

    schema = TabularSchema((NumericColumn("age", 0, 100), CategoricalColumn("smoker", ("no", "yes"))), ("a", "b"))
    x = schema.encode(ROWS)
    learned = learner_create("logistic_regression").fit(x, (x[:, 0] > 0.5).astype(int), classes=2, seed=1)
    return LocalModel.of(onnx_file(learned, schema, CARD | {"evaluation": {"accuracy": 0.9, "majority": None}}))


def test_a_folder_of_the_hub_states_the_privacy(model: LocalModel, tmp_path: Path) -> None:
    folder = model.to_hub_folder(tmp_path / "hub", licence="other", title="Hearts")
    _, metadata, text = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    found = yaml.safe_load(metadata)
    assert found["privacy"] == {"epsilon": 2.0, "delta": 1e-5, "unit": "data holder", "method": "pate"} | {
        "groups": GROUPS,
        "note": "",
    }
    assert (found["license"], found["pipeline_tag"]) == ("other", "tabular-classification")
    assert "| HIGH | 0.5 |" in text and "δ = 1e-05" in text
    np.testing.assert_array_equal(LocalModel.load(folder / "model.onnx").predict(ROWS), model.predict(ROWS))
    with pytest.raises(FileExistsError):
        model.to_hub_folder(folder, licence="other")


def test_skops_writes_the_estimator(model: LocalModel, tmp_path: Path) -> None:
    from skops.io import get_untrusted_types, load

    written, name = model.to_skops(tmp_path / "model.skops"), "ipate_client.local_model.LocalClassifier"
    assert get_untrusted_types(file=written) == [name]
    loaded = load(written, trusted=[name])
    np.testing.assert_array_equal(loaded.predict_proba(ROWS), model.predict_proba(ROWS))


@pytest.mark.exhaustive
def test_mlflow_and_the_hub_read_them(model: LocalModel, tmp_path: Path) -> None:
    """With the libraries themselves, where they are installed."""
    mlflow, hub = pytest.importorskip("mlflow.pyfunc"), pytest.importorskip("huggingface_hub")
    loaded = mlflow.load_model(str(model.to_mlflow(tmp_path / "mlflow")))
    found = loaded.predict({name: np.array([row[name] for row in ROWS]) for name in ("age", "smoker")})
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS), atol=1e-9)
    assert loaded.metadata.metadata["privacy"]["groups"] == GROUPS
    card = hub.ModelCard.load(model.to_hub_folder(tmp_path / "hub", licence="other") / "README.md")
    assert card.data.library_name == "onnx" and card.data.eval_results[0].metric_value == 0.9
