"""Mechanisms and models, without Django and without people: representations, learners, students, formats, exports."""

import os

# Otherwise onnxruntime from 1.32 on sends session reports to its makers, in a separate thread; set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
