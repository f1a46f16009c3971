"""Programs that load a published model with nothing of iPATE; model cards show them as they stand.

Each has a function ``load(path)``, which gives a function from encoded records to class probabilities.
"""
