"""Coefficients of a model, by name and in the units of the table, and what is said of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._common.extras import require
from .._common.validation import ArgumentValueError, check_choice, check_real
from ..preparation import INTERCEPT
from ._inference import KINDS, Inference

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..preparation import Prepared

Array = NDArray[np.float64]


class Coefficients:
    """What a model says of its coefficients."""

    classes: tuple[Any, ...] | None
    prepared: Prepared
    w: Array
    inference: Inference

    # Coefficients -----------------------------------------------------------------------

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the prepared columns, shape (p,); the intercept, if there is one, is last."""
        return tuple(self.prepared.feature_names)

    @cached_property
    def coef(self) -> Array:
        """Coefficients in the units of the table, intercept included: shape (1, p) or (K, p).

        Of more than two classes they are those against the first, whose own are zero.
        """
        found = self.prepared.in_units(self.w)
        return found - found[0] if len(found) > 1 else found

    @property
    def told(self) -> Array:
        """The rows of `coef` that say something, shape (K', p)."""
        return self.coef if len(self.coef) == 1 else self.coef[1:]

    @property
    def has_intercept(self) -> bool:
        return bool(self.feature_names) and self.feature_names[-1] == INTERCEPT

    @property
    def coefficients(self) -> dict[Any, Any]:
        """Coefficients by column, in the units of the table, without the `intercept`.

        `to_pandas` has both, as what statsmodels calls ``params``.
        Of more than two classes a dict by class, each against the first.
        """
        return self._named(self.told, intercept=False)

    @property
    def intercept(self) -> Any:
        """The intercept, 0 if there is none; of more than two classes a dict by class."""
        last = self.told[:, -1] if self.has_intercept else np.zeros(len(self.told))
        if len(last) == 1:
            return float(last[0])
        assert self.classes is not None
        return dict(zip(self.classes[1:], last.tolist(), strict=True))

    def _named(self, values: Any, *, intercept: bool = True) -> dict[Any, Any]:
        """Values of shape (K', p, ...) by column, and by class before that if there are several."""
        names = self.feature_names
        if self.has_intercept and not intercept:
            names = names[:-1]
        rows = [dict(zip(names, row, strict=False)) for row in np.asarray(values).tolist()]
        if len(rows) == 1:
            return rows[0]
        assert self.classes is not None
        return dict(zip(self.classes[1:], rows, strict=True))

    # Inference --------------------------------------------------------------------------

    def covariance(self, kind: str | None = None) -> Array:
        """The covariance of the coefficients in the units of the table, shape (K'*p, K'*p).

        Columns in the order of `feature_names`, for each class but the first if there are more
        than two.

        Parameters
        ----------
        kind : {"wald", "robust", "clustered"}, optional
            From the likelihood; robust to rows that vary more or less than it says; or robust to
            rows of a client that resemble one another. By default the first that there is.

        Raises
        ------
        ValueError
            If there is none of this kind, and why; without `kind`, if the loss is no likelihood.
        """
        return self.inference.covariances[self._kind(kind)]

    def _kind(self, kind: str | None) -> str:
        known = self.inference
        if kind is None:
            if known.default is None:
                why = known.missing.get("wald", "")
                raise ArgumentValueError(
                    "kind", f"must be given where there is no default: {why}; "
                    f"{' and '.join(known.covariances) or 'no kind'} can be had",
                )  # fmt: skip
            return known.default
        if check_choice("kind", kind, KINDS) not in known.covariances:
            raise ArgumentValueError("kind", f"{kind!r} cannot be had: {known.missing[kind]}")
        return kind

    def _errors(self, kind: str | None) -> Array:
        variances = np.diag(self.covariance(kind)).reshape(self.told.shape)
        return np.sqrt(np.maximum(variances, 0.0))

    def standard_errors(self, kind: str | None = None) -> dict[Any, Any]:
        """Standard errors by column, the intercept included; see `covariance`."""
        return self._named(self._errors(kind))

    def p_values(self, kind: str | None = None) -> dict[Any, Any]:
        """Two-sided p-values of the coefficients being zero, by column; see `covariance`."""
        return self._named(self.statistics(kind)["p_value"].reshape(self.told.shape))

    def confidence_intervals(self, level: float = 0.95, kind: str | None = None) -> dict[Any, Any]:
        """Lower and upper ends by column, as lists of two; see `covariance`.

        Student's distribution for least squares and for clustered errors, with clients minus 1
        degrees of freedom; else the normal one.
        """
        found = self.statistics(kind, level)
        ends = np.stack([found["low"], found["high"]], axis=1)
        return self._named(ends.reshape(*self.told.shape, 2))

    def statistics(self, kind: str | None = None, level: float = 0.95) -> dict[str, Array]:
        """Coefficients and what is said of them, arrays of shape (K'*p,).

        Returns
        -------
        dict
            ``coefficient``, ``standard_error``, ``statistic`` (their ratio), ``p_value``, ``low``
            and ``high``.
        """
        from scipy.special import ndtr, ndtri, stdtr, stdtrit

        level = check_real("level", level, low=0.0, high=1.0, open_low=True, open_high=True)
        kind = self._kind(kind)
        value, error = self.told.ravel(), self._errors(kind).ravel()
        df = self.inference.df(kind)
        normal = np.isinf(df)
        ratio = np.divide(value, error, out=np.full(len(value), np.nan), where=error > 0)
        upper = (1 + level) / 2
        reach = (ndtri(upper) if normal else stdtrit(df, upper)) * error
        beyond = ndtr(-np.abs(ratio)) if normal else stdtr(df, -np.abs(ratio))
        return {
            "coefficient": value, "standard_error": error, "statistic": ratio,
            "p_value": 2 * beyond, "low": value - reach, "high": value + reach,
        }  # fmt: skip

    def to_pandas(self, kind: str | None = None, level: float = 0.95) -> DataFrame:
        """`statistics` as a table, one row per coefficient."""
        pandas = require("pandas", "tables", "Model.to_pandas")
        names: list[Any] = list(self.feature_names)
        if len(self.told) > 1:
            assert self.classes is not None
            index = pandas.MultiIndex.from_product(
                [self.classes[1:], names], names=["class", "column"]
            )
        else:
            index = pandas.Index(names, name="column")
        return pandas.DataFrame(self.statistics(kind, level), index=index)
