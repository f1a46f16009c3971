"""The engine of all runs: who takes part, shards, spending under the lock, the one commit, and verification."""
