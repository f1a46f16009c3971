"""Mechanisms and models, without Django and without people: representations, learners, students, formats, exports."""

import os

# From 1.32 on onnxruntime reports sessions to its makers, by a thread of its own, unless this is set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
