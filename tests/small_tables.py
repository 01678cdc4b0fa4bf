"""A small table with all that tables have, and what is learned from it."""

from __future__ import annotations

import numpy as np

from fedepm_fast.preparation import Preparation, as_table

AGES = [30.0, 41.0, None, 52.0, 63.0, 29.0, 44.0, 58.0]
SEXES = ["f", "m", "f", None, "f", "m", "m", "f"]


def a_table():
    return as_table({"age": AGES, "sex": SEXES, "smoker": [True, False] * 4})


def learned(table, sizes=(5, 3), **choices):
    """A preparation, learned from the tables of clients whose rows follow one another."""
    preparation = Preparation(**choices)
    parts = np.split(np.arange(len(table)), np.cumsum(sizes)[:-1])
    return preparation.learn(
        [preparation.summarize(table.take(rows), guard=False) for rows in parts]
    )
