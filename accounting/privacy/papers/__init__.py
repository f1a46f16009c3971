"""Rényi costs of the PATE papers, used only in rehearsals and benchmarks, never for charges."""
