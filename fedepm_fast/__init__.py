"""FedEPM, the exact penalty method for federated learning, with compiled kernels.

``run(algorithm, data)`` runs FedEPM, or what went before it; `fedepm_fast.kernels` holds the
kernels for use in other code; ``fedepm run`` does it all from the command line.
"""

from __future__ import annotations

# Nothing is imported here: a Ctrl-C of the command line meanwhile would be a traceback.
TYPE_CHECKING = False

__version__ = "0.1.0"

# Imported on first use: the command line answers at once, and the kernels are importable
# without SciPy.
_HOMES = {
    "FedEPM": "algorithms",
    "FedADMM": "algorithms",
    "FedAvg": "algorithms",
    "FedDyn": "algorithms",
    "FedNL": "algorithms",
    "FedPD": "algorithms",
    "FedProx": "algorithms",
    "Scaffold": "algorithms",
    "SFedAvg": "algorithms",
    "SFedProx": "algorithms",
    "CurvatureFedEPM": "algorithms",
    "FederatedData": "data",
    "ArgumentError": "_common.validation",
    "ArgumentTypeError": "_common.validation",
    "ArgumentValueError": "_common.validation",
    "Logistic": "objectives",
    "Huber": "objectives",
    "LeastSquares": "objectives",
    "Multinomial": "objectives",
    "ScalarLoss": "objectives",
    "SquaredHinge": "objectives",
    "Problem": "objectives",
    "GivenRandomness": "randomness",
    "Result": "result",
    "DivergenceWarning": "result",
    "run": "runner",
    "run_callables": "callables",
    "make_problem": "runner",
    "Model": "models",
    "ModelWarning": "models",
    "evaluate": "models",
    "fit": "models",
    "Store": "store",
    "StoreError": "store",
    "Sweep": "sweeps",
    "SweepResult": "sweeps",
    "grid": "sweeps",
    "sweep": "sweeps",
    "TuneResult": "tuning",
    "tune": "tuning",
}

# Literal, so that type checkers read it.
__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CurvatureFedEPM",
    "DivergenceWarning",
    "FedADMM",
    "FedAvg",
    "FedDyn",
    "FedEPM",
    "FedNL",
    "FedPD",
    "FedProx",
    "FederatedData",
    "GivenRandomness",
    "Huber",
    "LeastSquares",
    "Logistic",
    "Model",
    "ModelWarning",
    "Multinomial",
    "Problem",
    "Result",
    "SFedAvg",
    "SFedProx",
    "Scaffold",
    "ScalarLoss",
    "SquaredHinge",
    "Store",
    "StoreError",
    "Sweep",
    "SweepResult",
    "TuneResult",
    "__version__",
    "aggregation",
    "algorithms",
    "callables",
    "callbacks",
    "client",
    "data",
    "datasets",
    "evaluate",
    "fit",
    "grid",
    "kernels",
    "loaders",
    "losses",
    "make_problem",
    "models",
    "noise",
    "objectives",
    "own_losses",
    "paper",
    "participation",
    "partition",
    "plots",
    "preparation",
    "privacy",
    "randomness",
    "reference",
    "result",
    "run",
    "run_callables",
    "runner",
    "server",
    "sources",
    "stopping",
    "store",
    "sweep",
    "sweeps",
    "synthetic",
    "theory",
    "tune",
    "tuning",
]

if TYPE_CHECKING:
    from typing import Any

    from . import (
        algorithms,
        callables,
        callbacks,
        data,
        datasets,
        kernels,
        losses,
        models,
        noise,
        objectives,
        paper,
        participation,
        plots,
        preparation,
        privacy,
        randomness,
        reference,
        result,
        runner,
        stopping,
        store,
        sweeps,
        theory,
        tuning,
    )
    from ._common.validation import ArgumentError, ArgumentTypeError, ArgumentValueError
    from .algorithms import (
        CurvatureFedEPM,
        FedADMM,
        FedAvg,
        FedDyn,
        FedEPM,
        FedNL,
        FedPD,
        FedProx,
        Scaffold,
        SFedAvg,
        SFedProx,
    )
    from .callables import run_callables
    from .data import FederatedData, loaders, partition, sources, synthetic
    from .federation import aggregation, client, server
    from .losses import scalar as own_losses
    from .models import Model, ModelWarning, evaluate, fit
    from .objectives import (
        Huber,
        LeastSquares,
        Logistic,
        Multinomial,
        Problem,
        ScalarLoss,
        SquaredHinge,
    )
    from .randomness import GivenRandomness
    from .result import DivergenceWarning, Result
    from .runner import make_problem, run
    from .store import Store, StoreError
    from .sweeps import Sweep, SweepResult, grid, sweep
    from .tuning import TuneResult, tune


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    elif name in __all__:
        value = importlib.import_module(f".{name}", __name__)
    else:
        value = _registered(name)
    globals()[name] = value
    return value


def _registered(name: str) -> Any:
    """A loss or an algorithm by the name of its class: a file of its own has no other entry."""
    import importlib

    for home in ("losses", "algorithms") if name[:1].isupper() else ():
        value = getattr(importlib.import_module(f".{home}", __name__), name, None)
        if value is not None:
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Moved:
    """Finds modules that moved into folders by the names that they had, as the same modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith(f"{__name__}."):
            return None
        from ._moved import spec_of

        return spec_of(name)


def _find_moved() -> None:
    import sys

    # Last, for names that nobody else finds; once, also where the package is imported again.
    if not any(type(finder).__qualname__ == _Moved.__qualname__ for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


_find_moved()
