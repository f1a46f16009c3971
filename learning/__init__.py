"""Mechanisms and models, independent of Django and people: representations, learners, students, formats, exports."""

import os

# Must be set before the import: from 1.32 on, onnxruntime otherwise sends telemetry in a separate thread.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
