"""Loader of a model as ONNX. Needs onnxruntime and NumPy."""

import json

import numpy as np
import onnxruntime


def load(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    schema = json.loads(session.get_modelmeta().custom_metadata_map["schema"])

    def number(value, missing):
        return np.nan if value in missing else float(value)

    def predict(rows):
        """Classes and probabilities of rows: objects with a value per column, or images."""
        if schema["kind"] == "image":
            return session.run(None, {"image": np.asarray(rows, np.float32)})
        feeds = {}
        for column in schema["columns"]:
            if column["role"] == "feature":
                values = [row[column["name"]] for row in rows]
                if column["type"] == "numeric":
                    feeds[column["name"]] = np.array([number(value, column["missing"]) for value in values])
                else:
                    feeds[column["name"]] = np.array([str(value) for value in values], object)
        return session.run(None, feeds)

    return predict
