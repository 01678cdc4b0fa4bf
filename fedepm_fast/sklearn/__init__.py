"""FedEPM as scikit-learn estimators: linear models whose rows are spread over clients.

``FedEPMClassifier`` is logistic regression, binary or multinomial; ``FedEPMRegressor`` is ridge or
Huber regression. They minimise::

    sum_t v_t * loss(<a_t, w> + b, y_t) / sum_t v_t + beta/2 * |w|^2

over the rows of all clients, with sample weights v_t, 1 unless given: the pooled objective of
``LogisticRegression(C=1/(beta*d))`` and ``Ridge(alpha=beta*d)``; the intercept b is not penalised.
With ``client_weight="equal"`` it is the mean over the clients of that, as in the paper.

The rows of all clients are in this process: this is a simulation of federated learning, with
scikit-learn's tools around it. Nothing is noisy or private, unless ``total_epsilon`` is given: then
the model has the guarantee that ``privacy_`` holds, and what is public of columns and classes is
declared.
"""

from __future__ import annotations

from .._common.docstrings import inherit_parameters
from .._common.extras import require

require("sklearn", "sklearn", "fedepm_fast.sklearn")

from ._classifier import FedEPMClassifier  # noqa: E402
from ._estimator import FedEPMEstimator  # noqa: E402
from ._regressor import FedEPMRegressor  # noqa: E402

__all__ = ["FedEPMClassifier", "FedEPMRegressor"]

for _estimator in (FedEPMClassifier, FedEPMRegressor):
    _estimator.__module__ = __name__  # where documentation and pickles name them
    inherit_parameters(_estimator, FedEPMEstimator)
