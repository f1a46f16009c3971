"""Networks of private steps: shapes, initial weights; how they are stored: tests/learning/test_stored_networks.py."""

import numpy as np
import pytest

from tests.learning.lazily import network_create, networks, nn, torch


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
