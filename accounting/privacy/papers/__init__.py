"""Rényi costs from the PATE papers, used only in rehearsals and benchmarks, never for charges."""
