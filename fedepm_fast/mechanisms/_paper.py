"""The paper's noise beside the mechanisms, in name only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._common.validation import check_real
from ..guarantees import NO_GUARANTEE


@dataclass(frozen=True)
class PaperNoise:
    """The noise of the paper or of its authors' program, which gives no guarantee.

    Parameters
    ----------
    epsilon : float
        The number that divides the noise, called a privacy budget there.
    """

    epsilon: float = 0.1
    guarantee: ClassVar[str] = NO_GUARANTEE

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, low=0.0, open_low=True)
