"""The engine that carries out all runs: participants, shards, charges under the study's lock, commits, verification."""
