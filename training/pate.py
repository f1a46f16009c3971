"""The names of :mod:`training.methods.pate` under the address that callers outside the project know."""

from training.methods.pate import *  # noqa: F403
