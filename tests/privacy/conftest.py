"""Fixtures of the tests of privacy."""

from __future__ import annotations

import pytest

from fedepm_fast._common import files


@pytest.fixture
def no_disk(monkeypatch):
    """What is tested is the order of writing; waiting for the disk adds nothing."""
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)
