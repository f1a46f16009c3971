"""Promises to holders: what an ε means for them, their current state, and how their records were used."""
