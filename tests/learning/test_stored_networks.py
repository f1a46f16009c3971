"""Machines without PyTorch get the same predictions and the same graph from the same file."""

import numpy as np
import pytest

from learning.learners import Model, learner_create
from learning.mechanisms.sampled_steps.run_plan import NETWORK_CHOICES, weights_number
from learning.outcomes import Numbers
from learning.published import published_load
from learning.representations import Standardised, layers_of_model, representation_create
from learning.students import STUDENTS, Releases

IMAGES = np.random.default_rng(0).random((24, 17, 20, 3)).astype(np.float32)


def models() -> dict[str, Model]:
    from learning.mechanisms.sampled_steps.networks import NetworkModel, network_create

    labels, found = np.arange(24) % 3, {}
    found["cnn"] = learner_create("cnn", {"epochs": 1}).fit(IMAGES, labels, classes=3, seed=1)
    releases = Releases(np.arange(24), np.eye(3)[labels] * 9, np.ones(24))
    for thorough in (False, True):
        student = STUDENTS["consistency"](steps=3, filters=4, thorough=thorough)
        found["consistency" + " thorough" * thorough] = student.learn(IMAGES, releases, seed=1)
    for name in NETWORK_CHOICES:
        network = network_create(name, IMAGES.shape[1:], 3, seed=1)
        assert weights_number(name, IMAGES.shape[1:], 3) == sum(each.numel() for each in network.parameters())
        found[f"network_{name}"] = NetworkModel(network, 3, IMAGES.shape[1:], scale=0.5)
    fitted = Standardised().fit(IMAGES.reshape(24, -1)[:, :5])
    target = Numbers(0.0, 2.0, "cm")
    network = network_create("mlp", (fitted.dimensions,), target.outputs, seed=2)
    found["network_mlp of a number"] = NetworkModel(network, target.outputs, (5,), space=fitted, target=target)
    return found


def test_stored_networks_predict_and_are_exported_without_pytorch(request: pytest.FixtureRequest) -> None:
    made = models()
    sizes = {name: len(layers_of_model(model)) for name, model in made.items()}
    files = {name: (model.to_bytes(), model.shape, graph_of(model), sizes[name]) for name, model in made.items()}
    x = {shape: IMAGES.reshape(24, -1)[:, :5] if len(shape) == 1 else IMAGES for _, shape, *_ in files.values()}
    expected = {name: model.predict_proba(x[model.shape]) for name, model in made.items()}
    for name, (data, shape, *_) in files.items():
        assert (published_load(name.split(" ")[0], data).predict_proba(x[shape]) == expected[name]).all()
    request.getfixturevalue("without_pytorch")
    for name, (data, shape, graph, inner) in files.items():
        again = published_load(name.split(" ")[0], data)
        assert type(again).__name__ == "StoredNetwork" and again.to_bytes() == data
        np.testing.assert_allclose(again.predict_proba(x[shape]), expected[name], atol=2e-6, err_msg=name)
        assert graph_of(again) == graph, name
        assert "network" in name or len(layers_of_model(again)) == inner, name
        with pytest.raises(ValueError, match="train it again"):
            published_load(name.split(" ")[0], data[:-1])


def graph_of(model: Model) -> bytes:
    from learning.exports.graph import Graph

    graph = Graph()
    records = graph.input("records", 1, model.shape)
    return graph.to_bytes({"values": (model.to_graph(graph, records), 11, (model.classes,))}, {})


@pytest.mark.parametrize("name", ["wavelets", pytest.param("patches", marks=pytest.mark.exhaustive)])
def test_encoders_of_images_give_the_same_bits_without_pytorch(name: str, request: pytest.FixtureRequest) -> None:
    images = np.random.default_rng(1).random((30, 33, 60, 3))
    with_it = representation_create(name).fit(images).transform(images)
    request.getfixturevalue("without_pytorch")
    assert (representation_create(name).fit(images).transform(images) == with_it).all()
