"""Machine learning: mechanisms, representations, learners, students, formats and exports. Does not import Django."""

import os

# Must be set before the import, or onnxruntime 1.32 and later sends telemetry in a separate thread.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
