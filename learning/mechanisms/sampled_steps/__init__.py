"""Private gradient steps over samples of the holders, and what they are compared with."""

from learning.mechanisms.sampled_steps.rates import sample_rates, scale_norms

__all__ = ["sample_rates", "scale_norms"]
