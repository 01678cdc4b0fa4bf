"""The storage of a tuning: finished trials, and nothing but those."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..store import StoreError

#: The settings of a tuning, among the user attributes of its study.
_SETTINGS = "fedepm_fast"


class KeptTrials:
    """The finished trials, in a storage or in memory only.

    Parameters
    ----------
    storage : str, path, optuna.storages.BaseStorage, or None
        A URL, the path of an SQLite file, or None or ``":memory:"`` for memory only.
    name : str
        Of the study.
    settings : mapping
        What determines the trials, as plain values.

    Raises
    ------
    StoreError
        If the storage cannot be opened or written.
    ValueError
        If it has a study of that name with other settings, naming them.
    """

    def __init__(
        self, optuna: Any, storage: Any, name: str, settings: Mapping[str, Any], maximize: bool
    ) -> None:
        self.trials: list[Any] = []
        self.study: Any = None
        self.name, self.where = name, storage
        self._own: Any = None
        if storage is None or storage == ":memory:":
            return
        if isinstance(storage, (str, os.PathLike)):
            with self._explained():
                url, self.where = located(storage)
                storage = self._own = optuna.storages.RDBStorage(url)
        elif not isinstance(storage, optuna.storages.BaseStorage):
            raise TypeError(
                "storage must be a URL, a path or a storage of Optuna, "
                f"got {type(storage).__name__}"
            )
        try:
            with self._explained():
                self.study = optuna.create_study(
                    storage=storage,
                    study_name=name,
                    direction="maximize" if maximize else "minimize",
                    load_if_exists=True,
                )
                self.trials = self.study.get_trials()
                if not self.trials:  # nothing that other settings could have made
                    self.study.set_user_attr(_SETTINGS, dict(settings))
            if self.trials:
                self._check(self.study.user_attrs.get(_SETTINGS), settings)
        except BaseException:
            self.close()
            raise

    def _check(self, known: Any, settings: Mapping[str, Any]) -> None:
        finished = all(trial.state.is_finished() for trial in self.trials)
        if known is None or not finished:
            raise ValueError(
                f"study must be one of fedepm_fast, {self.name!r} in {self.where} is not: "
                "give another name"
            )
        wanted = json.loads(json.dumps(settings))
        for key in dict.fromkeys([*known, *wanted]):
            there, here = known.get(key), wanted.get(key)
            if there != here:
                raise ValueError(
                    f"study {self.name!r} in {self.where} was made with {key} = {_short(there)}, "
                    f"this is {_short(here)}: give another name, or the same settings"
                )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the storage raises, as one line."""
        try:
            yield
        except (ImportError, ValueError, TypeError):
            raise
        except Exception as error:
            first = " ".join(str(error.__cause__ or error).split("\n")[0].split())
            raise StoreError(f"storage {self.where} cannot be used: {first}") from None

    def append(self, trial: Any) -> None:
        """Keep a finished trial: it is there, whole, or not."""
        if self.study is not None:
            with self._explained():
                if len(self.study.get_trials(deepcopy=False)) != len(self.trials):
                    raise StoreError(
                        f"storage {self.where} has trials of study {self.name!r} that another "
                        "program added meanwhile: one at a time"
                    )
                self.study.add_trial(trial)
        self.trials.append(trial)

    def close(self) -> None:
        """Let go of the storage."""
        if self._own is not None:
            self._own.remove_session()
            self._own.engine.dispose()


def located(storage: str | os.PathLike[str]) -> tuple[str, str]:
    """The URL of a storage, as Optuna takes it, and what to call it: the file if it is one.

    Raises
    ------
    ValueError
        If it is a URL that cannot be read, or a path that this SQLAlchemy has no URL for.
    """
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError

    text = os.fspath(storage)
    if isinstance(storage, str) and re.match(r"[A-Za-z][\w+.-]*://", text):
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise ValueError("storage must be a path or a URL, got one that has no parts") from None
        file = url.database if url.get_backend_name() == "sqlite" else None
        return text, file or url.render_as_string(hide_password=True)
    path = str(Path(text).absolute())
    made = URL.create("sqlite", database=path).render_as_string(hide_password=False)
    if make_url(made).database != path:  # before SQLAlchemy 2.1
        raise ValueError(f"storage must be a path without a question mark, got {text!r}")
    return made.replace("{", "{{").replace("}", "}}"), text  # Optuna fills in what is in braces


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
