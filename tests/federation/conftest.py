"""What holds for all tests of servers and clients apart."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Processes are killed here, not the machine: waiting for the disk adds nothing."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
