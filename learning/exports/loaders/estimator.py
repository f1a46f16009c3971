"""Loader of a scikit-learn model. Needs scikit-learn, skops and NumPy."""

import numpy as np
import skops.io

# Classes of scikit-learn that skops does not know by itself: compiled trees.
TRUSTED = ["sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"]


def load(path):
    stored = skops.io.load(path, trusted=TRUSTED)
    estimator, classes = stored["estimator"], stored["classes"]

    def probabilities(x):
        """Probabilities (n, classes) of encoded records x; images are laid flat, row by row."""
        result = np.zeros((len(x), classes))
        result[:, estimator.classes_] = estimator.predict_proba(x.reshape(len(x), -1))
        return result

    return probabilities
