"""``fedepm plan``, and the run that ``fedepm run --private`` plans."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _common as common
from . import _options as options
from ._options import of_group, with_options

if TYPE_CHECKING:
    from ..data import FederatedData
    from ..mechanisms import Mechanism
    from ..objectives import Objective
    from ..privacy.private_plan import PrivatePlan
    from ..result import Result

#: Options of a mechanism that a plan settles, or that say what there is to plan for.
SETTLED = ("moments", "epsilon_per_round", "public_scaling")
#: Options of an algorithm and of a run that a plan leaves open.
_OPEN = ("participation", "engine")


@with_options("objective", "mechanism", without=["regularizer", "weights", *SETTLED])
def plan(
    clients: Annotated[int, typer.Option(help="Number of clients.", metavar="M")],
    rows: Annotated[int, typer.Option(help="Rows of all of them, in equal numbers.", metavar="D")],
    columns: Annotated[
        int, typer.Option(help="Columns of numbers, an intercept among them.", metavar="N")
    ],
    participation: Annotated[
        float, typer.Option(help="Share of the clients that take part in a round.")
    ] = 1.0,
    client_weight: Annotated[
        str, typer.Option(help="size: all rows count alike; equal: all clients.")
    ] = "size",
    trust: options.Trust = None,
    honest: options.Honest = None,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Say what a private run would cost, from public numbers: no data are touched.

    The settings of fedepm run --private and of fedepm fit --total-epsilon, the noise, how far it is
    expected to raise the mean loss, and what would make it affordable where it is not.
    """
    import numpy as np

    from .._common.validation import check_int

    m = check_int("clients", clients, low=1)
    d = check_int("rows", rows, low=m)
    sizes = np.diff(np.arange(m + 1) * d // m)
    made = planned(
        common.make_mechanism(given), sizes, check_int("columns", columns, low=1),
        common.make_objective(given), given,
        participation=participation, client_weight=client_weight, trust=trust, honest=honest,
    )  # fmt: skip
    print(json_module.dumps(record_of(made), allow_nan=False) if json else made)


def planned(
    mechanism: Mechanism,
    sizes: Any,
    columns: int,
    objective: Objective,
    given: Mapping[str, Any],
    **others: Any,
) -> PrivatePlan:
    """The plan of these public numbers; without a penalty unless --beta is given."""
    from ..privacy import plan as plan_of

    others = {name: value for name, value in others.items() if value is not None}
    beta = {"beta": objective.beta if "beta" in given else 0.0, "regularizer": "beta"}
    return plan_of(
        mechanism=mechanism, client_sizes=sizes, n_features=columns,
        objective=objective.changed(**beta), **others,
    )  # fmt: skip


def record_of(made: PrivatePlan) -> dict[str, Any]:
    """A plan for other programs."""
    return {
        "algorithm": made.algorithm.describe(), "objective": made.objective.describe(),
        "clients": len(made.client_sizes), "rows": int(made.client_sizes.sum()),
        "columns": made.n_features, "rounds": made.rounds, "kept": made.kept, "trust": made.trust,
        "honest": made.honest, "level": made.level, "deviation": made.deviation, "rise": made.rise,
        "short": made.short,
    }  # fmt: skip


def check_settled(given: Mapping[str, Any]) -> None:
    """Refuse options that have no meaning where a plan settles the run."""
    known = {*of_group("algorithm"), *of_group("settings"), *SETTLED} - {*_OPEN, "public_scaling"}
    for name, value in given.items():
        if name in known and (name, value) != ("stopping", "none") and name != "algorithm":
            raise ValueError(
                f"{name} has no meaning with --private, whose settings the plan makes: "
                "run(FedEPM(mechanism=...), rounds=...) in Python takes others"
            )


class PlannedRun:
    """What ``fedepm run --private`` does, from its options."""

    def __init__(
        self, given: Mapping[str, Any], objective: Objective, trial: int = 0, **trust: Any
    ) -> None:
        from ..data.sources import is_scaling_public

        check_settled(given)
        if trial:
            raise ValueError("trial has no meaning with --private, whose noise is always fresh")
        self.given, self.objective, self.trust = given, objective, trust
        source = given.get("data", "adult")
        self.public = is_scaling_public(source) or bool(given.get("public_scaling"))
        kept = {name: value for name, value in given.items() if name not in SETTLED}
        self.mechanism = common.make_mechanism(kept)

    def columns(self, data: FederatedData) -> FederatedData:
        """The data with columns whose mean square is about 1, by numbers that are public."""
        from ..data import standardised

        if self.public:
            return standardised(data)
        if data.description.get("scale"):
            raise ValueError(
                "the columns were divided by numbers that depend on the data: --public-scaling "
                "declares that means and deviations of the columns are public, --no-scale takes "
                "columns as they are, with an intercept only if they have one"
            )
        return data

    def plan(self, data: FederatedData) -> PrivatePlan:
        """The plan for data of these sizes."""
        return planned(
            self.mechanism, data.client_sizes, data.n_features, self.objective, self.given,
            participation=self.given.get("participation", 1.0), **self.trust,
        )  # fmt: skip

    def run(
        self, made: PrivatePlan, data: FederatedData, seed: int | None, callback: Any
    ) -> Result:
        """The planned run."""
        return made.run(
            data, seed=seed, engine=self.given.get("engine"), callback=callback,
            public_scaling=self.public,
        )  # fmt: skip
