"""The folder of a server of models: its state as the last round ended, and the journal since."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._folder import Folder
from ._journal import Journal

Array = NDArray[Any]


class Models(Folder):
    """The folder of a server whose state is a few arrays.

    Parameters
    ----------
    path, settings, width
        As of `Folder`; entries are float64.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], width: int
    ) -> None:
        super().__init__(path, settings, width, np.dtype(np.float64))

    def read(self) -> dict[str, Array]:
        """The state as the last round ended; empty before the first has.

        Raises
        ------
        ValueError
            If it is damaged, or of another run.
        """
        arrays, self._at_start = self._at_start, None
        return self._read() if arrays is None else arrays

    def end_round(self, arrays: Mapping[str, Array]) -> None:
        """Make these the state, and begin another round; all on the disk.

        If this raises, the round goes on, and may be ended again.
        """
        self.check_mine()
        self._write(self.tau + 1, arrays)
        self._tidy()

    #: What was read to open the folder, until it is asked for.
    _at_start: dict[str, Array] | None = None

    def _restore(self) -> None:
        if (self.path / "state.npz").exists():
            self._at_start = self._read()
            path = self._journal_path(self.tau)
            self._use(Journal(path, self._width, self._dtype))
        else:
            self._check_new()
            self._write(0, {})
        self._tidy()

    def _check_new(self) -> None:
        """A kill may have left an empty journal; any other one has lost its state."""
        empty = Journal.HEAD.size + Journal.CHECK.size
        for path in self.path.glob("journal-*"):
            if path.name != "journal-0" or path.stat().st_size > empty:
                raise ValueError(f"path holds {path.name} without its state.npz: {self.path}")
