"""ONNX files of encoders that are on PyPI: programs for the command line, see docs/encoders.md."""
