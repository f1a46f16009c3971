"""Promises to holders: what an ε means for them, where they stand, and what was done with their records."""
