"""Federated data in one line, and in a notebook's table."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._common import html
from .._common.text import counted, first_few, plural

#: Clients that a notebook shows.
_SHOWN = 20


def summary_of(data: Any) -> str:
    """Source, rows, features, clients, sizes, and what was made of the table."""
    sizes, note = data.client_sizes, data.description
    d, n, m = data.n_samples, data.n_features, data.n_clients
    table = f"{counted(d, 'row')}, {counted(n, 'feature')}"
    held = "1 client"
    if m > 1:
        each = f"{sizes.min()} to {sizes.max()}" if sizes.min() < sizes.max() else f"{sizes[0]}"
        held = f"{m} clients of {each} {plural('row', sizes.max())}"
    text = f"{note.get('source', 'arrays')}: {table}, {held}"
    if data.sample_weight is not None:
        weights = data.sample_weight
        low, high = (f"{bound:g}" for bound in (weights.min(), weights.max()))
        text += f"; rows weighed by {low}" + f" to {high}" * (low != high)
    mapped = ""
    if data.label_mapping:
        pairs = [f"{a} -> {b}" for a, b in data.label_mapping.items()]
        mapped = first_few(pairs, 5)
    if "label_column" in note:
        text += f"; label column {note['label_column']}" + f" ({mapped})" * bool(mapped)
    elif mapped:
        text += f"; labels {mapped}"
    if "format" in note:  # a file
        if "client_column" in note:
            text += f"; client column {note['client_column']}"
        if note.get("unnamed_index"):
            text += "; first column, without a name, left out as an index"
        scale = note.get("scale")
        scaled = "scaled to unit norm" if scale == "unit-norm" else scale and f"of {scale}"
        text += f"; columns {scaled or 'not scaled'}"
    if zeros := note.get("zero_columns"):
        names = [data.feature_names[j] if data.feature_names else str(j) for j in zeros]
        text += f"; only zeros in column{'s' if len(zeros) > 1 else ''} {first_few(names, 5)}"
    return text


def html_of(data: Any) -> str:
    """The summary, and for each client its rows and the mean of their labels."""
    means = np.add.reduceat(data.labels, data.offsets[:-1]) / data.client_sizes
    names = data.client_names or tuple(map(str, range(data.n_clients)))
    shown = list(zip(names, data.client_sizes, means, strict=True))[:_SHOWN]
    rows = [[name, f"{size:,}", f"{mean:.4g}"] for name, size, mean in shown]
    if data.n_clients > _SHOWN:
        rows.append([f"{data.n_clients - _SHOWN} more", "", ""])
    return html.table(["client", "rows", "mean label"], rows, summary_of(data))
