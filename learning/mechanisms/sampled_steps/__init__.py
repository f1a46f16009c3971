"""Private gradient steps on samples of the holders, and baselines for them."""

from learning.mechanisms.sampled_steps.rates import sample_rates, scale_norms
