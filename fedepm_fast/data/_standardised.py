"""Columns of mean 0 and standard deviation 1, beside a column of ones."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ._federated import FederatedData

#: Deviations below so many units in the last place of the mean are rounding: a constant column.
_ROUNDING = 32
#: What the description says of the columns.
STANDARDISED = "mean 0 and deviation 1"
_INTERCEPT = "(intercept)"


def standardised(data: FederatedData) -> FederatedData:
    """The same clients, their columns of mean 0 and deviation 1, and a last column of ones.

    The means and deviations are those of all rows. A private run takes them as public, and is
    refused unless its mechanism has ``public_scaling``: they are for tables that everybody has.
    What is known of others is declared by `Preparation.public`.

    Parameters
    ----------
    data : FederatedData
        Of n features. Sparse ones are divided by the root of their mean square, and not centred.

    Returns
    -------
    FederatedData
        Of n + 1 features in float64. Columns without any spread are zeros. Its description says
        that there is an intercept, and so does what is run on it.
    """
    a, d = data.features, data.n_samples
    ones = np.ones((d, 1))
    if sparse.issparse(a):
        scale = np.sqrt(np.asarray(a.multiply(a).sum(axis=0)).ravel() / d)
        scale[scale == 0] = 1.0
        features = sparse.hstack([a @ sparse.diags_array(1 / scale), ones], format="csr")
    else:
        mean = a.mean(axis=0, dtype=np.float64)
        centred = a - mean
        scale = np.sqrt(np.square(centred).mean(axis=0))
        constant = scale <= _ROUNDING * np.finfo(np.float64).eps * np.abs(mean)
        centred[:, constant] = 0.0
        features = np.hstack([centred / np.where(constant, 1.0, scale), ones])
    names = data.feature_names
    return FederatedData(
        features, data.labels, data.client_sizes,
        None if names is None else (*names, _INTERCEPT), data.client_names, data.rows,
        {**data.description, "scale": STANDARDISED, "intercept": True}, data.sample_weight,
    )  # fmt: skip
