"""A fit whose tables stay where they are: what clients and the server send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.validation import (
    ArgumentValueError,
    check_choice,
    check_int,
    check_real,
)
from ..algorithms import CurvatureFedEPM
from ..data import FederatedData
from ..losses import Objective, as_objective
from ..objectives import CLIENT_WEIGHTS, ClientProblem
from ..preparation import Preparation, Prepared, SecondMoments, TableSummary
from ..preparation._summary import check_format
from ._diagnosis import notes_of
from ._model import Model
from ._rows import Rows, coded, counting, read_rows, with_label_in
from ._solving import Solution
from ._sums import ClientSums, LabelSums, point_sums
from ._training import assemble, numbers_of, with_penalty

if TYPE_CHECKING:
    from ..federation.curvature_client import CurvatureClient
    from ..federation.curvature_server import CurvatureServer

Array = NDArray[np.float64]

_SUMMARY, _TERMS = "fedepm_fast summary of a site", "fedepm_fast terms of a fit"


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """What `fit` does where nobody has all rows: the same bits, of messages that are JSON.

    The server and the clients, which are sites here, have the same parameters. What a site sends
    are sums over its rows, without noise::

        site.summary() -> learn        how columns become numbers, from means and levels
        site.moments() -> settle       which columns are sums of others
        site.client() <-> server()     rounds: f_i, its gradient, its Hessian
        site.sums()    -> model        standard errors

    Parameters
    ----------
    label : str
        The column of the labels. Rows without one are left out.
    objective : str or Objective
        The loss.
    classes : sequence, optional
        The values of the label, of two the second the one whose probability is modelled; None
        for numbers.
    client_weight, beta
        As of `fit`.
    preparation : Preparation, optional
        How columns become numbers.
    algorithm : CurvatureFedEPM, optional
        The parameters of the rounds, by default those of `fit`.
    """

    label: str
    objective: str | Objective = "logistic"
    classes: Sequence[Any] | None = None
    client_weight: str = "size"
    beta: float = 0.0
    preparation: Preparation = field(default_factory=Preparation)
    algorithm: CurvatureFedEPM = field(default_factory=lambda: CurvatureFedEPM(tol=1e-14))

    def __post_init__(self) -> None:
        objective = as_objective(self.objective)
        check_choice("client_weight", self.client_weight, CLIENT_WEIGHTS)
        check_real("beta", self.beta, low=0.0)
        of_numbers = objective.task == "regression"
        if of_numbers != (self.classes is None):
            what = "None for numbers" if of_numbers else "given, the values of the label in order"
            raise ArgumentValueError("classes", f"must be {what}, got {self.classes!r}")
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
            if len(set(self.classes)) < max(len(self.classes), 2) or (
                objective.task == "classification" and len(self.classes) != 2
            ):
                two = "two" if objective.task == "classification" else "at least two"
                raise ArgumentValueError(
                    "classes", f"must be {two} different values, got {list(self.classes)}"
                )
        if objective.task == "multiclass" and self.classes is not None:
            objective = objective.changed(classes=len(self.classes))
        object.__setattr__(self, "objective", objective)

    # At a site --------------------------------------------------------------------------

    def site(self, table: Any, name: str, *, sample_weight: str | None = None) -> Site:
        """What one client does, with its own table.

        Parameters
        ----------
        table : table
            Of any kind that `fedepm_fast.preparation` reads.
        name : str
            Of the client.
        sample_weight : str, optional
            The column of the rows' weights.
        """
        rows = read_rows(table, self.label, sample_weight=sample_weight)
        rows = with_label_in(rows, self.preparation.ignore_case)
        labels = coded(rows.label, self.classes)  # type: ignore[arg-type]
        known = counting(rows, labels)
        return Site(self, str(name), rows.take(known), labels[known])

    # At the server ----------------------------------------------------------------------

    def learn(self, summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The terms of the fit from the summaries of all sites, in the order of their numbers.

        Raises
        ------
        ValueError, TypeError
            If they are none, or do not go together.
        """
        for summary in summaries:
            check_format(summary, _SUMMARY, 1)
        tables = [TableSummary.from_dict(summary["table"]) for summary in summaries]
        names = [str(summary["name"]) for summary in summaries]
        if len(set(names)) < len(names):
            raise ArgumentValueError("summaries", f"must have different names, got {names}")
        sums = [check_real("weight", each["weight"], low=0.0) for each in summaries]
        return {
            "format": _TERMS,
            "version": 1,
            "prepared": self.preparation.learn(tables).to_dict(),
            "names": names,
            "weight_sum": float(np.array(sums).sum()),
            "said": max(numbers_of(summary["table"]) for summary in summaries),
        }

    def settle(
        self, terms: Mapping[str, Any], moments: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The terms without columns that are sums of others, from the moments of all sites."""
        prepared = prepared_of(terms)
        given = [SecondMoments.from_dict(each) for each in moments]
        return {**terms, "prepared": prepared.without_aliased(given).to_dict()}

    def server(self, terms: Mapping[str, Any], **options: Any) -> CurvatureServer:
        """The server of the rounds; `options` are those of `CurvatureServer`."""
        from ..federation.curvature_server import CurvatureServer

        objective = self.objective_of(prepared_of(terms))
        p, outputs = len(prepared_of(terms).feature_names), objective.n_outputs
        return CurvatureServer(
            self.algorithm, len(terms["names"]), p * outputs, classes=outputs,
            bounded=objective.curvature is not None, **options,
        )  # fmt: skip

    def model(
        self,
        terms: Mapping[str, Any],
        server: CurvatureServer,
        sums: Sequence[Mapping[str, Any]],
        *,
        client: str | None = None,
    ) -> Model:
        """The model of the server's point, from what all sites say of it.

        Parameters
        ----------
        terms : mapping
            As `settle` gave them.
        server : CurvatureServer
            Whose `x` all sites were asked for their sums at.
        sums : sequence of mapping
            Of the sites, in the order of their numbers.
        client : str, optional
            What clients are called.
        """
        prepared, w = prepared_of(terms), server.x.copy()
        objective = self.objective_of(prepared)
        said = [ClientSums.from_dict(each, len(w)) for each in sums]
        named = dict(zip(terms["names"], said, strict=True))
        rounds, n = server.round_of_x, len(w)
        weights = np.tile(objective.weights or (), objective.n_outputs)
        shares = np.array([each.weight for each in said])
        factors = 1 / shares.sum() if self.client_weight == "size" else 1 / (len(said) * shares)
        gradient = np.array([each.points.score for each in said]).T @ np.broadcast_to(
            factors, len(said)
        )
        norm = float(np.linalg.norm(gradient + self.beta * weights * w))
        p = len(prepared.feature_names)
        sent = server.algorithm.numbers_sent(n, rounds)  # type: ignore[attr-defined]
        solution = Solution(w, norm, server.converged, rounds, sent)
        training = {
            "client_weight": self.client_weight, "beta": self.beta, "class_weight": None,
            "weighted": any(each.labels.rows != each.labels.weight for each in said),
            "participation": self.algorithm.participation, "seed": server.seed,
            "rounds": rounds, "max_rounds": rounds, "gradient_norm": norm,
            "tol": self.algorithm.tol, "converged": server.converged, "unbounded": [],
            "sent": {
                "preparation": check_int("said", terms["said"]) + p * (p + 1) // 2,
                "rounds": sent, "inference": n * (n + 1) + n + 8,
            },
        }  # fmt: skip
        return assemble(
            objective, prepared, w, named, training, called=(self.label, client),
            classes=self.classes, notes=tuple(notes_of(solution, [], objective)),  # type: ignore[arg-type]
        )  # fmt: skip

    def objective_of(self, prepared: Prepared) -> Objective:
        """The loss of prepared columns, whose intercept has no penalty."""
        assert isinstance(self.objective, Objective)
        return with_penalty(self.objective, prepared, self.beta)


@dataclass(frozen=True, eq=False)
class Site:
    """A client of a `FederatedFit`, with its rows; made by `FederatedFit.site`."""

    fit: FederatedFit
    name: str
    rows: Rows = field(repr=False)
    labels: Array = field(repr=False)

    def summary(self, *, guard: bool = True) -> dict[str, Any]:
        """Counts, sums and levels of the columns: see `Preparation.summarize`.

        Raises
        ------
        DisclosureError
            With `guard`, if they would say too much.
        """
        told = self.fit.preparation.summarize(self.rows.table, client=self.name, guard=guard)
        return {
            "format": _SUMMARY,
            "version": 1,
            "name": self.name,
            "table": told.to_dict(),
            "weight": self._weight,
        }

    def moments(self, terms: Mapping[str, Any], *, guard: bool = True) -> dict[str, Any]:
        """Sums of products of prepared columns: see `Prepared.second_moments`."""
        prepared = prepared_of(terms)
        found = prepared.second_moments(self.rows.table, client=self.name, guard=guard)
        return found.to_dict()

    def client(self, terms: Mapping[str, Any]) -> CurvatureClient:
        """The client of the rounds."""
        from ..federation.curvature_client import CurvatureClient

        prepared, names = prepared_of(terms), list(terms["names"])
        if self.name not in names:
            raise ArgumentValueError("terms", f"must be of {self.name!r} too, got those of {names}")
        data = FederatedData(
            prepared.transform(self.rows.table), self.labels, np.array([len(self.labels)]),
            feature_names=prepared.feature_names, sample_weight=self.rows.weights,
        )  # fmt: skip
        problem = ClientProblem(
            data, self.fit.objective_of(prepared), self.fit.client_weight, clients=len(names),
            weight_sum=check_real("weight_sum", terms["weight_sum"], low=0.0, open_low=True),
        )  # fmt: skip
        return CurvatureClient(
            self.fit.algorithm, problem, index=names.index(self.name), clients=len(names)
        )

    def sums(self, terms: Mapping[str, Any], x: Array) -> dict[str, Any]:
        """What the rows say of the last point: Hessians and squares for standard errors."""
        prepared, weights = prepared_of(terms), self.rows.weights
        objective = self.fit.objective_of(prepared)
        v = np.ones(len(self.labels)) if weights is None else weights
        points = point_sums(objective, prepared.transform(self.rows.table), self.labels, v, x)
        labels = LabelSums.of(objective, self.labels, v)
        return ClientSums(points, labels, self._weight).to_dict()

    @property
    def _weight(self) -> float:
        weights = self.rows.weights
        return float(len(self.labels) if weights is None else weights.sum())


def prepared_of(terms: Mapping[str, Any]) -> Prepared:
    """The preparation that terms have.

    Raises
    ------
    ValueError, TypeError
        If they are none.
    """
    check_format(terms, _TERMS, 1)
    return Prepared.from_dict(terms["prepared"])
