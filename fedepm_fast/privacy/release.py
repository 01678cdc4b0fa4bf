"""Noise for uploads that really leave a client."""

from __future__ import annotations

from ..mechanisms._release import LARGEST_SCALE, LEAST_SCALE, release, release_scale

__all__ = ["LARGEST_SCALE", "LEAST_SCALE", "release", "release_scale"]
