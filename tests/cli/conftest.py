"""Fixtures that several test modules of the command line use."""

from __future__ import annotations

import pytest
from small_sweeps import SPECIFICATION


@pytest.fixture
def spec(tmp_path):
    """The file of a small sweep."""
    path = tmp_path / "steps.toml"
    path.write_text(SPECIFICATION)
    return path
