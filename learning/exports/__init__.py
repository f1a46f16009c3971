"""Published models as ONNX files for any runtime, including encoding, representation and class names."""
