"""Federated data in one line."""

from __future__ import annotations

from typing import Any


def summary_of(data: Any) -> str:
    """Source, rows, features, clients, sizes, and what was made of the table."""
    sizes, note = data.client_sizes, data.description
    text = (
        f"{note.get('source', 'arrays')}: {data.n_samples} rows, {data.n_features} features, "
        f"{data.n_clients} clients of {sizes.min()} to {sizes.max()} rows"
    )
    if data.sample_weight is not None:
        weights = data.sample_weight
        text += f"; rows weighed by {weights.min():g} to {weights.max():g}"
    mapped = ""
    if data.label_mapping:
        pairs = [f"{a} -> {b}" for a, b in data.label_mapping.items()]
        mapped = ", ".join([*pairs[:5], *["..."] * (len(pairs) > 5)])
    if "label_column" in note:
        text += f"; label column {note['label_column']}" + f" ({mapped})" * bool(mapped)
    elif mapped:
        text += f"; labels {mapped}"
    if "format" in note:  # a file
        if "client_column" in note:
            text += f"; client column {note['client_column']}"
        if note.get("unnamed_index"):
            text += "; first column, without a name, left out as an index"
        text += f"; columns {'scaled to unit norm' if note.get('scale') else 'not scaled'}"
    if zeros := note.get("zero_columns"):
        names = [data.feature_names[j] if data.feature_names else str(j) for j in zeros[:5]]
        text += f"; only zeros in column{'s' if len(zeros) > 1 else ''} {', '.join(names)}"
        text += ", ..." if len(zeros) > 5 else ""
    return text
