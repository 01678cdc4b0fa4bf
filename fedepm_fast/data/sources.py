"""Where the data of a sweep come from: frozen descriptions, dealt to clients by a seed.

A source is data before the split. ``source.split(seed)`` is the federated data of one trial,
a pure function of the seed, and ``source.identity`` is everything else that determines it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from .._common.parameters import check_fields, integer, param, parameters
from .._common.validation import (
    MAX_SEED,
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    check_choice,
    check_int,
    check_parameters,
    prefixed,
)
from . import loaders, synthetic
from ._federated import FederatedData
from ._holding import Frozen
from ._named import DATASETS
from ._table import Table as Table
from .partition import PARTITIONERS, ByColumn, Partitioner

CLIENTS = 100
SAMPLES_PER_CLIENT = 200


class Source:
    """What every source has."""

    #: What people call it.
    name: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of clients, features and rows of all clients, (m, n, d)."""
        raise NotImplementedError

    @property
    def n_clients(self) -> int:
        """Number of clients, m."""
        return self.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features, n."""
        return self.shape[1]

    @property
    def n_samples(self) -> int:
        """Number of rows of all clients, d."""
        return self.shape[2]

    @property
    def has_weights(self) -> bool:
        """Whether rows have sample weights."""
        return False

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the data, the seed aside, as plain values; ``clients`` among them."""
        raise NotImplementedError

    @property
    def columns(self) -> dict[str, Any]:
        """What a table of runs says of the data."""
        return {"data": self.name, **self.identity}

    def split(self, seed: int) -> FederatedData:
        """The data of a trial, dealt to clients."""
        raise NotImplementedError


def read_adult() -> Table:
    """The Adult table, as `datasets.adult` deals it."""
    return DATASETS["adult"].prepared()


@dataclass(frozen=True)
class Reading:
    """How a file is read.

    Parameters
    ----------
    label, client_column, format, n_features, header, separator
        As in `loaders.load`.
    """

    label: str | int | None = param(
        None, metavar="COLUMN", help="label column of the file; the last by default"
    )
    client_column: str | int | None = param(
        None, metavar="COLUMN", help="column of the file that names each row's client"
    )
    format: str | None = param(
        None, help="of the file: svmlight, csv, parquet, npy or npz", shown="from its name"
    )
    n_features: int | None = param(
        None, help="features of an SVMlight file", shown="its largest index"
    )
    header: bool | None = param(
        None, help="whether the first line of a CSV file names its columns",
        shown="what it looks like",
    )  # fmt: skip
    separator: str | None = param(
        None, help="of a CSV file: a character, or tab", shown="one of , ; tab |", metavar="CHAR"
    )


def read_table(
    path: str | os.PathLike[str],
    *,
    scale: str | None = "unit-norm",
    task: str = "classification",
    **options: Any,
) -> Table:
    """Read and prepare a table; see `loaders.read_federated` for the errors.

    The options are those of `Reading`.
    """
    loaded = loaders.load(path, **dataclasses.asdict(Reading(**options)))
    name = Path(path).name
    with loaders.errors_of(path, loaded, task):
        return Table.prepare(name, loaded, task=task, scale=scale, source=name)


@dataclass(frozen=True, eq=False)
class Partitioned(Source):
    """A table that a partitioner deals to clients, anew for every seed.

    Parameters
    ----------
    table : Table
    partition : Partitioner
    """

    table: Table
    partition: Partitioner

    def __post_init__(self) -> None:
        if type(self.partition) not in (*PARTITIONERS.values(), ByColumn):
            raise ArgumentTypeError(
                "partition",
                f"must be one of {', '.join(map(repr, PARTITIONERS))}, or a partitioner "
                f"of fedepm_fast.data.partition, got {self.partition!r}",
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.table.name

    @property
    def shape(self) -> tuple[int, int, int]:
        held = self.table.held
        return int(self.partition.describe()["clients"]), held.n_features, held.n_samples

    @cached_property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        how = self.partition.describe()
        found = {"clients": how.pop("clients"), "partition": how.pop("name"), **how}
        if isinstance(self.partition, ByColumn):
            ids = np.unique(np.asarray(self.partition.ids), return_inverse=True)[1]
            found["client_ids"] = hashlib.sha256(ids.astype(np.int64).tobytes()).hexdigest()
        return found | {"content": self.table.content, "scale": self.table.scale}

    def split(self, seed: int) -> FederatedData:
        seed = check_int("seed", seed, high=MAX_SEED)
        with prefixed(f"{self.name}:"):
            return self.table.held.resplit(self.partition, seed)


@dataclass(frozen=True)
class Synthetic(Frozen, Source):
    """Clients of `synthetic.make_federated`, made anew for every seed.

    Parameters
    ----------
    task : {"logistic", "multinomial", "least_squares"}
    clients, features, heterogeneity, imbalance, density, n_classes, scale, dtype
        As in `synthetic.make_federated`.
    samples : int, optional
        Rows in all; 200 for each client by default.
    label_noise : float
        The ``noise`` of `synthetic.make_federated`.
    """

    task: str = "logistic"
    clients: int = param(100, check=integer(low=1), symbol="$m$", help="number of clients")
    samples: int | None = param(None, help="rows in all", shown="200 for each client")
    features: int = param(20, check=integer(low=1), symbol="$n$", help="number of features")
    heterogeneity: float = param(0.0, help="how much clients differ; 1 is as much as rows do")
    imbalance: float = param(0.0, help="deviation of the logarithm of the clients' sizes")
    label_noise: float = param(1.0, help="noise of the labels")
    density: float | None = param(None, help="share of entries that are not zero, in (0, 1]")
    n_classes: int = param(3, help="number of classes, for --objective multinomial")
    scale: str | None = "unit-norm"
    dtype: str = param("float64", help="float64 or float32, of the features")
    name: str = field(default="synthetic", init=False)

    def __post_init__(self) -> None:
        check_fields(self)
        samples = SAMPLES_PER_CLIENT * self.clients if self.samples is None else self.samples
        self._set(samples=check_int("samples", samples, low=self.clients))
        self._set(dtype=self._make(0, clients=1, samples=1, features=1).features.dtype.name)
        for name in ("heterogeneity", "imbalance", "label_noise", "density"):
            if getattr(self, name) is not None:
                self._set(**{name: float(getattr(self, name))})

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.clients, self.features, int(cast(int, self.samples))

    @property
    def identity(self) -> dict[str, Any]:
        found = dataclasses.asdict(self)
        if self.task != "multinomial":
            del found["n_classes"]
        return {"data": found.pop("name"), **found}

    def split(self, seed: int) -> FederatedData:
        return self._make(seed)

    def _make(self, seed: int, **changed: int) -> FederatedData:
        values = dataclasses.asdict(self) | changed
        del values["name"]
        noise = values.pop("label_noise")
        try:
            return synthetic.make_federated(**values, noise=noise, seed=seed)
        except ArgumentError as error:
            raise error.of("label_noise") if error.argument == "noise" else error from None


@dataclass(frozen=True, eq=False)
class Fixed(Source):
    """Federated data as they are: trials differ in selection and noise, not in the split.

    Parameters
    ----------
    data : FederatedData
    """

    data: FederatedData

    def __post_init__(self) -> None:
        if not isinstance(self.data, FederatedData):
            raise ArgumentTypeError(
                "data", f"must be FederatedData, got {type(self.data).__name__}"
            )

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.data.description.get("source", "arrays"))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.data.n_clients, self.data.n_features, self.data.n_samples

    @property
    def has_weights(self) -> bool:
        return self.data.sample_weight is not None

    @cached_property
    def identity(self) -> dict[str, Any]:  # type: ignore[override]
        return {"clients": self.data.n_clients, "content": self.data.content_hash()}

    @property
    def columns(self) -> dict[str, Any]:
        how = self.data.description.get("partition", {})
        return {**super().columns, "partition": how.get("name", "given")}

    def split(self, seed: int) -> FederatedData:
        return self.data


# From options --------------------------------------------------------------------------

_HOW = tuple(
    dict.fromkeys(
        ["partition", *(name for cls in PARTITIONERS.values() for name in parameters(cls))]
    )
)
_FILE = (*parameters(Reading), "scale")
_SYNTHETIC = tuple(name for name in parameters(Synthetic) if name != "task")


def allowed_options(source: Any) -> tuple[str, ...]:
    """What `from_options` takes beside ``source``."""
    if source == "synthetic":
        return _SYNTHETIC
    return _HOW if source in DATASETS else (*_HOW, *_FILE)


def names_shown() -> str:
    """The names that a source may have, for messages."""
    return ", ".join(map(repr, (*DATASETS, "synthetic")))


def is_scaling_public(source: Any) -> bool:
    """Whether the norms of a source's columns are public, so that a private run may use them."""
    return source in DATASETS and DATASETS[source].public_scaling


def table_of(
    source: str | os.PathLike[str],
    *,
    loss: Any,
    read: Callable[..., Table] = read_table,
    **options: Any,
) -> Table:
    """The table of a dataset or, with the options of `read_table`, of a file, for a loss."""
    if not isinstance(source, str) or source not in DATASETS:
        table = read(source, **options, task=loss.task)
        table.check_labels(source, loss)
        return table
    found = DATASETS[source]
    found.check_loss(loss)
    return found.prepared()


def from_options(
    options: Mapping[str, Any],
    *,
    loss: Any,
    read: Callable[..., Table] = read_table,
) -> Source:
    """A source from named options, as a specification or a command line gives them.

    Parameters
    ----------
    options : mapping
        ``source`` is the name of a dataset (by default ``"adult"``), ``"synthetic"`` or the path
        of a file, ``"./adult"`` if it has the name of a dataset; the
        others are those of the source and of its partitioner, which ``partition`` names.
        ``scale`` may be a bool.
    loss : Objective
        It decides what the labels are.
    read : callable
        Reads a file, as `read_table` does.

    Raises
    ------
    ValueError, TypeError, FileNotFoundError
        Naming the option; one that would have no effect is refused.
    """
    given = dict(options)
    source = given.pop("source", "adult")
    if not isinstance(source, (str, os.PathLike)):
        raise ArgumentTypeError(
            "source", f"must be {names_shown()} or the path of a file, got {source!r}"
        )
    allowed = allowed_options(source)
    for name in given:
        if name not in allowed:
            home = "a file" if name in _FILE else "a table" if name in _HOW else "synthetic data"
            raise ArgumentValueError(name, f"is for {home}, not for {source}")
    if "scale" in given and isinstance(given["scale"], bool):
        given["scale"] = "unit-norm" if given["scale"] else None
    if source == "synthetic":
        if loss.labels == "counts":
            raise ArgumentValueError(
                "objective",
                f"must not be {loss.name} with synthetic data: its labels are counts, and those "
                f"of the task {loss.task!r} are drawn with any sign",
            )
        if loss.task == "multiclass" and loss.classes is not None:
            given.setdefault("n_classes", loss.classes)
        return Synthetic(task=synthetic.BY_TASK[loss.task], **given)
    how = {name: given.pop(name) for name in _HOW if name in given}
    if how and given.get("client_column") is not None:
        raise ValueError(f"{next(iter(how))} and client_column exclude each other")
    table = table_of(source, loss=loss, read=read, **given)
    # A file may name the client of every row; an explicit choice goes before that.
    if table.clients is not None and not how:
        return Partitioned(table, ByColumn(table.clients))
    return Partitioned(table, make_partition(**how))


def make_partition(partition: Any = "random", **options: Any) -> Partitioner:
    """The partitioner of that name, with those of its parameters that are given."""
    cls: Any = PARTITIONERS[check_choice("partition", partition, PARTITIONERS)]
    check_parameters(f"partition {partition!r}", options, list(parameters(cls)))
    return cls(**{"clients": CLIENTS, **options})
