"""Networks of private steps: shapes, initial weights, storage."""

import numpy as np
import pytest

from learning.representations import Standardised
from tests.learning.lazily import network_create, networks, nn, torch

SHAPES = {"linear": (5,), "mlp": (5,), "cnn": (16, 17)}


@pytest.mark.parametrize("name", SHAPES)
def test_a_stored_network_predicts_as_before(name: str) -> None:
    assert networks.NETWORKS.keys() == SHAPES.keys()
    x = np.random.default_rng(1).normal(size=(20, *SHAPES[name]))
    model = networks.NetworkModel(network_create(name, SHAPES[name], 4, seed=3), 4, SHAPES[name])
    again = networks.network_from_bytes(name, model.to_bytes())
    assert again.shape == SHAPES[name]
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1)


def test_a_network_on_a_representation_is_stored_with_it() -> None:
    x = np.random.default_rng(1).normal(size=(150, 5))
    space = Standardised().fit(x)
    network = networks.with_weights(
        network_create("mlp", (space.dimensions,), 3), np.linspace(-1, 1, 64 * 6 + 65 * 32 + 99)
    )
    again = networks.network_from_bytes(
        "mlp", networks.NetworkModel(network, 3, (5,), space=space, scale=0.02).to_bytes()
    )
    coordinates = torch.from_numpy(space.transform(x.astype(np.float32)).astype(np.float32)) * 0.02
    expected = network(coordinates).double().softmax(1).detach().numpy()
    np.testing.assert_allclose(again.predict_proba(x), expected, atol=1e-6)


def test_the_convolutional_network_has_the_layers_of_the_paper() -> None:
    """Written with PyTorch's modules, whose maxima are those of our own layers."""
    for shape in ((28, 28), (16, 16), (20, 17, 3)):
        network = network_create("cnn", shape, 10, seed=2)
        images = torch.from_numpy(np.random.default_rng(2).random((3, *shape), np.float32))
        pooled = [(layer, nn.Tanh(), nn.MaxPool2d(2, 1)) for layer in (network.first, network.second)]
        layers = nn.Sequential(*pooled[0], *pooled[1], nn.Flatten(), network.hidden, nn.Tanh(), network.output)
        expected = layers(images.movedim(3, 1) if len(shape) == 3 else images[:, None])
        torch.testing.assert_close(network(images), expected, rtol=0, atol=1e-6)


def test_initial_weights_follow_from_the_arguments() -> None:
    first, again, other = (network_create("mlp", (5,), 3, seed).first.weight for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert first.abs().max() <= 5**-0.5


def test_unfit_input_and_bytes_of_something_else_are_refused() -> None:
    for arguments, message in (
        (("tree", (5,), 2), "choose one of"),
        (("mlp", (5,), 1), "classes"),
        (("cnn", (15, 28), 2), "16×16"),
    ):
        with pytest.raises(ValueError, match=message):
            network_create(*arguments)
    stored = networks.NetworkModel(network_create("mlp", (5,), 2), 2, (5,)).to_bytes()
    for name, data in (("linear", stored), ("mlp", b"nothing"), ("mlp", stored[:-8])):
        with pytest.raises(ValueError, match="cannot be read"):
            networks.network_from_bytes(name, data)
