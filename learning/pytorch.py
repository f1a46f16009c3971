"""Whether PyTorch is here: workers have it; machines that only serve pages, count time or back up do without."""

from importlib.util import find_spec

from common.sentences import Sentence, gettext_noop


def has_pytorch() -> bool:
    """Return whether PyTorch is installed, without loading it."""
    return find_spec("torch") is not None


def pytorch_check() -> None:
    """Raise ValueError, with a sentence for people, if PyTorch is not installed."""
    if not has_pytorch():
        raise ValueError(
            Sentence(
                gettext_noop(
                    "Training this network takes PyTorch, which is not installed on this machine. Choose something "
                    "else, or ask your administrator to install requirements/worker.txt here."
                )
            )
        )
