"""Promises to holders: the meaning of an ε for them, their current state, and the uses of their records."""
