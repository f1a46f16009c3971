"""Encoders: public networks as ONNX files that turn an image or a text into numbers, each record by itself.

They run in a separate process (`learning.encoders.process`), with limits on its memory and on its time. Nothing here
imports Django.
"""

from learning.encoders.files import EncoderError, EncoderFile, ImageInput, TextInput, input_from_json
from learning.encoders.process import EncoderProcess, sample_of

__all__ = ["EncoderError", "EncoderFile", "EncoderProcess", "ImageInput", "TextInput", "input_from_json", "sample_of"]
