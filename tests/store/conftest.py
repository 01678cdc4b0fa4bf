"""Fixtures of the tests of the store."""

from __future__ import annotations

import pytest
from records import record

from fedepm_fast import Store


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.add(
            record(i, local_steps=4 * (1 + i % 2), clients=50, max_iterations=None)
            for i in range(1, 101)
        )
    return path
