"""Rows that are given client by client, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._common.validation import (
    ArgumentTypeError,
    ArgumentValueError,
    check_finite,
    numbers_of,
    ordered_categories,
    refuse_masked,
)
from ._holding import frozen, text_columns
from ._labels import mapped_labels


class Joined(NamedTuple):
    """The rows of all clients, one client after the other."""

    features: Any
    labels: Any
    client_sizes: NDArray[np.int64]
    note: dict[str, Any]
    """What a description says of the labels."""
    feature_names: tuple[str, ...] | None


def join(clients: Any, task: str | None) -> Joined:
    """What `FederatedData.from_clients` is given, as one table."""
    given = _pairs(clients)
    if not given:
        raise ArgumentValueError(
            "clients", "must hold at least one (features, labels) pair, got none"
        )
    names = _shared_columns(given)
    first, *_ = given
    pairs: list[tuple[Any, Any]] = []
    for who, (features, given_labels) in given.items():
        pairs.append(_checked(who, features, given_labels))
        n = pairs[0][0].shape[1]
        if pairs[-1][0].shape[1] != n:
            raise ValueError(
                f"{who} must have {n} features like {first}, got {pairs[-1][0].shape[1]}"
            )
    if any(sparse.issparse(f) for f, _ in pairs):
        table = sparse.vstack([f for f, _ in pairs])
    else:
        table = frozen(np.concatenate([f for f, _ in pairs]))
    labels: Any = [b for _, b in pairs]
    if task is None or len({b.dtype.kind for b in labels}) == 1:
        labels = np.concatenate(labels)
    else:  # as one array, different kinds would be text or floats
        labels = [entry for b in labels for entry in b.tolist()]
    note: dict[str, Any] = {}
    if task is not None:
        labels, note = mapped_labels(labels, task, _common_order(given))
    return Joined(table, labels, np.array([len(b) for _, b in pairs]), note, names)


def _shared_columns(given: dict[str, tuple[Any, Any]]) -> tuple[str, ...] | None:
    """The names of the columns, if all clients have them."""
    first, *_ = given
    names = [text_columns(features) for features, _ in given.values()]
    for who, found in zip(given, names, strict=True):
        if found is not None and names[0] is not None and found != names[0]:
            raise ValueError(
                f"{who} must have the columns of {first}, in their order, "
                f"got {', '.join(found)} instead of {', '.join(names[0])}"
            )
    return None if None in names else names[0]


def _checked(who: str, features: Any, labels: Any) -> tuple[Any, NDArray[Any]]:
    """A client's features, finite numbers or sparse, and its labels."""
    f: Any = features
    if not sparse.issparse(features):
        f = numbers_of(f"features of {who}", features)
    refuse_masked(f"labels of {who}", labels)
    b = np.asarray(labels)
    if np.ndim(f) != 2 or b.ndim != 1 or f.shape[0] != len(b):
        raise ValueError(
            f"{who} must be features (d_i, n) and labels (d_i,), "
            f"got shapes {np.shape(f)} and {b.shape}"
        )
    if not sparse.issparse(f):
        check_finite(f"features of {who}", f, text_columns(features))
    return f, b


def names_of(clients: Mapping[Any, Any], **given: Any) -> tuple[str, ...]:
    """The clients' names, where a mapping has them."""
    if "client_names" in given:
        raise ArgumentValueError("client_names", "must not be given where clients is a mapping")
    names = tuple(map(str, clients))
    if len(set(names)) < len(clients):
        raise ArgumentValueError("clients", "must have names that differ as text")
    return names


def _pairs(clients: Any) -> dict[str, tuple[Any, Any]]:
    """What `from_clients` is given: the pairs by what messages call them."""
    try:
        given = dict(clients) if isinstance(clients, Mapping) else dict(enumerate(clients))
    except TypeError:
        raise ArgumentTypeError(
            "clients", f"must be (features, labels) pairs, got {type(clients).__name__}"
        ) from None
    for key, pair in given.items():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            many = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
            raise TypeError(
                f"clients[{key!r}] must be a pair (features, labels), got "
                f"{type(pair).__name__}{many}"
            )
    return {f"clients[{key!r}]": (pair[0], pair[1]) for key, pair in given.items()}


def _common_order(given: dict[str, tuple[Any, Any]]) -> list[Any] | None:
    """The ordered categories that labels of all clients have."""
    first, *_ = given
    common = ordered_categories(given[first][1])
    for who, (_, labels) in given.items():
        if (order := ordered_categories(labels)) != common:
            raise ValueError(
                f"labels of {who} must have the ordered categories of {first}, {common}, "
                f"got {order}"
            )
    return common
