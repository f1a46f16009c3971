"""Modules that take seconds to load: only the tests that need one load it, and collecting tests loads none."""

from importlib import import_module
from typing import Any


class Lazy:
    """A module, or something in one, that is imported when it is used."""

    def __init__(self, module: str, name: str = "") -> None:
        self._found = lambda: getattr(import_module(module), name) if name else import_module(module)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_mock", "_pytest", "pytest")):  # pytest asks this for all names
            raise AttributeError(name)
        return getattr(self._found(), name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._found()(*arguments, **options)


nn, onnx, onnxruntime, torch = (Lazy(name) for name in ("torch.nn", "onnx", "onnxruntime", "torch"))
helper, TensorProto, metrics = Lazy("onnx.helper"), Lazy("onnx", "TensorProto"), Lazy("sklearn.metrics")
naive_bayes = Lazy("sklearn.naive_bayes")
graphs, networks = Lazy("learning.exports.graph"), Lazy("learning.mechanisms.sampled_steps.networks")
LocalModel, onnx_file = Lazy("ipate_client", "LocalModel"), Lazy("learning.exports.files", "onnx_file")
Gradients = Lazy("learning.mechanisms.sampled_steps.contributions", "Gradients")
network_create = Lazy("learning.mechanisms.sampled_steps.networks", "network_create")
