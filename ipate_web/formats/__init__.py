"""How dates are written where a language alone does not say it."""
