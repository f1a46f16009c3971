"""The engine of all runs: participants, shards, spending under the study's lock, atomic commits, and verification."""
