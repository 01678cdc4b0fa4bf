"""Datasets by name: built-in ones, each a file of `fedepm_fast.datasets`, and a user's own."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .._common.registry import Registry
from .._common.validation import MAX_SEED, ArgumentValueError, check_int
from ._federated import FederatedData
from ._scaling import column_norms, divide_columns
from ._table import Table, one_client
from .partition import ByColumn, Partitioner, RandomCuts

if TYPE_CHECKING:
    from ..kernels.losses import NarrowTable

#: The datasets by name, a user's own beside the built-in ones.
DATASETS: Registry[type[Dataset]] = Registry("dataset", "fedepm_fast.datasets")

#: The tasks of losses that the labels of a task suit, and what such losses are called.
_SUITED = {
    "classification": (("classification", "multiclass"), "of two classes"),
    "multiclass": (("multiclass",), "multinomial"),
    "regression": (("regression",), "one of a regression"),
}


class Dataset:
    """A table that every command, sweep and specification knows by its name.

    One of your own is a class derived from this one, with `load` and the attributes below; its
    definition enters it in `DATASETS` under its `name`. Its columns are scaled to unit norm.

    Attributes
    ----------
    name : str
        What options call it.
    label : str
        What summaries call it; the name by default.
    task : {"classification", "multiclass", "regression"}
        What the labels are.
    origin, licence : str
        Where the rows come from, and what allows their use.
    public_scaling : bool
        Whether the norms of the columns are public, so that they cost a private run nothing.
    whole_numbers : bool
        Whether all features are whole numbers that 16 bits hold, which kernels read faster.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    task: ClassVar[str] = "classification"
    origin: ClassVar[str]
    licence: ClassVar[str]
    public_scaling: ClassVar[bool] = False
    whole_numbers: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "label" not in vars(cls):
            cls.label = cls.name
        DATASETS.add(cls.name, cls)

    @classmethod
    def load(cls) -> Any:
        """The rows as they are, unscaled.

        Returns
        -------
        loaders.Loaded
            Or anything with ``features`` of shape (d, n), ``labels`` of shape (d,),
            ``feature_names`` and, where the rows have clients of their own, ``clients``.
        """
        raise NotImplementedError

    @classmethod
    def federated(
        cls, clients: int = 100, seed: int = 0, partition: Partitioner | None = None
    ) -> FederatedData:
        """The rows, scaled and split into clients.

        Parameters
        ----------
        clients : int
            Number of clients; the split is the paper's random cuts.
        seed : int
            Of the split.
        partition : Partitioner, optional
            Another way to split; `clients` is not used then.

        Returns
        -------
        FederatedData

        Raises
        ------
        ValueError, TypeError
            Naming the argument.
        FileNotFoundError, ImportError
            If the file or the library that has the rows is missing.
        """
        how = RandomCuts(check_int("clients", clients, low=1)) if partition is None else partition
        return cls._held().resplit(how, check_int("seed", seed, high=MAX_SEED))

    @classmethod
    @cache
    def prepared(cls) -> Table:
        """All rows, ready to be dealt; once."""
        clients = getattr(cls._read(), "clients", None)
        return Table(cls.name, cls._held(), cls._unscaled().content_hash(), "unit-norm", clients)

    @classmethod
    def check_loss(cls, loss: Any) -> None:
        """Raise ValueError unless the labels suit a loss."""
        suited, words = _SUITED[cls.task]
        if loss.task not in suited:
            raise ArgumentValueError(
                "objective", f"must be {words} for {cls.name}, got {loss.name!r}"
            )

    @classmethod
    @cache
    def _read(cls) -> Any:
        loaded = cls.load()
        for name in ("features", "labels", "feature_names"):
            if not hasattr(loaded, name):
                raise TypeError(
                    f"{cls.__name__}.load must return an object with features, labels and "
                    f"feature_names, such as loaders.Loaded, got {type(loaded).__name__}"
                )
        return loaded

    @classmethod
    @cache
    def _unscaled(cls) -> FederatedData:
        return one_client(cls._read(), cls.task, None, cls.label)

    @classmethod
    @cache
    def _held(cls) -> FederatedData:
        """All rows, scaled, as one client's."""
        raw = cls._unscaled()
        features = raw.features.copy()
        divide_columns(features, column_norms(features))
        note: dict[str, Any] = {"source": cls.label, "scale": "unit-norm", "task": cls.task}
        if raw.label_mapping:
            note["label_mapping"] = raw.label_mapping
        return FederatedData._of_table(
            features, raw.labels, ByColumn(np.zeros(raw.n_samples)), 0, raw.feature_names, note,
            cls._narrow if cls.whole_numbers else None,
        )  # fmt: skip

    @classmethod
    @cache
    def _narrow(cls) -> NarrowTable:
        """The same table for the kernels: codes and counts, with the scale of each column."""
        from ..kernels import losses

        counts = cls._unscaled().features
        table = losses.narrow_table(counts, 1 / column_norms(counts))
        assert table is not None
        return table
