"""Published models as ONNX files that any runtime predicts with: encoding, representation and class names inside."""
