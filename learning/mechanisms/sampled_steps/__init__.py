"""Private gradient steps over samples of the holders, and their baselines."""

from learning.mechanisms.sampled_steps.rates import sample_rates, scale_norms
