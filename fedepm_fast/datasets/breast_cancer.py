"""Breast Cancer Wisconsin (Diagnostic): measurements of 569 tumours, malignant or benign."""

from __future__ import annotations

from .._common.extras import require
from ..data import Dataset
from ..data.loaders import Loaded


class BreastCancer(Dataset):
    """569 rows of 30 measurements, as scikit-learn ships them; malignant is 1.

    Its columns are nearly parallel and its rows few: FedEPM needs ``mu0=30`` or so.
    """

    name = "breast_cancer"
    label = "Breast cancer"
    origin = "UCI Machine Learning Repository, Wolberg, Mangasarian, Street and Street 1993"
    licence = "CC BY 4.0"

    @classmethod
    def load(cls) -> Loaded:
        library = require("sklearn.datasets", "sklearn", "the dataset breast_cancer")
        found = library.load_breast_cancer()
        names = tuple(map(str, found.feature_names))
        return Loaded(found.data, found.target_names[found.target], None, names)
