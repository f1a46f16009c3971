"""Mechanisms and models, without Django and without people: representations, learners, students, formats, exports."""

import os

# Set before the import: otherwise onnxruntime from 1.32 on sends session reports to its makers, in a separate thread.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
