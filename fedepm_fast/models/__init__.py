"""From a table with a column of clients to a model that one can read, trust and use.

`fit` brings the columns of a table to numbers, fits a linear model to the rows of all clients,
and gives a `Model`: named coefficients in the units of the table, their standard errors, and
predictions for any other table. `evaluate` says how good these are, client by client.
"""

from __future__ import annotations

from ._comparison import Comparison
from ._evaluation import Evaluation, evaluate
from ._federated import FederatedFit, Site
from ._fit import fit
from ._inference import Inference
from ._model import Model, ModelWarning

__all__ = [
    "Comparison",
    "Evaluation",
    "FederatedFit",
    "Inference",
    "Model",
    "ModelWarning",
    "Site",
    "evaluate",
    "fit",
]
