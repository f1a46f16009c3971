"""Encoders: public networks, as ONNX files, that turn single images or texts into numbers.

Encoders run in a separate process (`learning.encoders.process`) with limited memory and time. This package does not
import Django.
"""

from learning.encoders.files import EncoderError, EncoderFile, ImageInput, TextInput, input_from_json
from learning.encoders.process import EncoderProcess, sample_of
