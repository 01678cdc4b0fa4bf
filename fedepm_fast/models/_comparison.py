"""What federation brings: models of one client, of all together, and of one table, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._common.text import counted
from ._evaluation import Evaluation
from ._measures import Measures

if TYPE_CHECKING:
    from ._model import Model


@dataclass(frozen=True, eq=False)
class Comparison:
    """Measures of the same rows, which no model was fitted to.

    Attributes
    ----------
    federated, pooled : Evaluation
        Of the model; and of the one that a single table of all rows would give.
    local : dict of dict
        Measures of each client's rows by the model of that client's other rows alone; for clients
        that have one.
    without : dict of str
        Why the other clients have none.
    notes : dict of str
        What is to be known of the models of clients that have one.
    """

    federated: Evaluation
    pooled: Evaluation
    local: dict[str, Measures]
    without: dict[str, str]
    notes: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "federated": self.federated.to_dict(), "pooled": self.pooled.to_dict(),
            "local": self.local, "without": self.without, "notes": self.notes,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], model: Model) -> Comparison:
        """Of such a dict, for the model that was compared."""
        federated, pooled = (
            Evaluation.from_dict(record[name], model) for name in ("federated", "pooled")
        )
        return cls(federated, pooled, record["local"], record["without"], record["notes"])

    def __repr__(self) -> str:
        return f"<Comparison on {counted(int(self.federated.overall['rows'] or 0), 'row')}>"

    def __str__(self) -> str:
        from ._words import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from ._words import comparison_html

        return comparison_html(self)
