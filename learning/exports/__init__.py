"""Published models as ONNX files for any runtime, including the encoding, the representation and the class names."""
