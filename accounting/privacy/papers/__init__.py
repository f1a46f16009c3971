"""Renyi costs of the PATE papers: they serve rehearsals and benchmarks, and account for nobody."""
