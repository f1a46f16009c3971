"""Asking every holder, batch by batch: who takes part, in which shards, and the one commit of release and charges."""
