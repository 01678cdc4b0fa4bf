"""A preparation in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.text import pairs
from ._levels import MISSING_LEVEL, OTHER
from ._rules import ColumnRule

if TYPE_CHECKING:
    from ._prepared import Prepared

#: Levels that a line names.
_NAMED = 8


def report_of(prepared: Prepared) -> str:
    """`Prepared.report`."""
    n, clients = len(prepared.features), len(prepared.clients)
    ones = " and the intercept" if prepared.intercept else ", no intercept"
    made = f"{n} {'column' if n == 1 else 'columns'} of numbers{ones}"
    if prepared.declared:
        head = f"Declared public, learned from no data: {made}."
    else:
        head = (
            f"Learned from sums of {prepared.rows:,} rows of {clients} "
            f"{'client' if clients == 1 else 'clients'}: {made}."
        )
    used = {feature.column for feature in prepared.features}
    rows = [(rule.name, _words(prepared, rule)) for rule in prepared.columns if rule.name in used]
    lines = [head, *pairs(rows, "  ")]
    left_out = [*prepared.dropped]
    left_out += [(name, "a sum of columns before it") for name in prepared.aliased]
    if left_out:
        lines += ["Left out:", *pairs(left_out, "  ")]
    return "\n".join(lines)


def _words(prepared: Prepared, rule: ColumnRule) -> str:
    features = [f for f in prepared.features if f.column == rule.name]
    if rule.kind == "category":
        return _category(rule, {f.level for f in features})
    parts = []
    if any(f.part == "value" for f in features):
        parts.append(rule.kind if rule.kind == "numeric" else "boolean, 1 for true")
    else:
        parts.append(f"{rule.kind}, constant but for where it is missing")
    value = next((f for f in features if f.part == "value"), None)
    if rule.bounds is not None:
        parts.append("clipped to {:.6g} ... {:.6g}, from -1 to 1".format(*rule.bounds))
    elif rule.deviation is not None and rule.kind == "numeric":
        parts.append(f"mean {rule.fill:.6g}, standard deviation {rule.deviation:.6g}")
    elif rule.kind == "boolean" and not prepared.declared:
        parts.append(f"true in {rule.fill:.1%}")
    if value is not None and rule.bounds is None and (value.center, value.scale) == (0.0, 1.0):
        parts.append("not scaled")
    if rule.missing or any(f.part == "missing" for f in features):
        parts.append(_missing(rule, any(f.part == "missing" for f in features)))
    return "; ".join(parts)


def _missing(rule: ColumnRule, has_indicator: bool) -> str:
    where = "missing" if rule.missing is None else f"{rule.missing:,} missing"
    told = f"{where}: {rule.fill:.6g} stands for it"
    return told + (", and a column says where" if has_indicator else "")


def _category(rule: ColumnRule, kept: set[str | None]) -> str:
    counts = rule.levels or {}
    shown = [level for level in counts if level in kept]
    named = ", ".join(
        level if counts[level] is None else f"{level} ({counts[level]:,})"
        for level in shown[:_NAMED]
    )
    more = f", ... ({len(shown)} levels)" if len(shown) > _NAMED else ""
    rows = counts.get(rule.reference or "")
    told = "" if rows is None else f" ({rows:,})"
    text = f"category, {named}{more} against {rule.reference}{told}"
    if rule.merged:
        some = ", ".join([*rule.merged][:_NAMED]) + ", ..." * (len(rule.merged) > _NAMED)
        text += f"; {OTHER} is {some}"
    elif OTHER in counts:
        text += f"; {OTHER} is any other level"
    if rule.missing and MISSING_LEVEL not in counts:
        text += f"; {rule.missing:,} missing: {rule.reference} stands for it"
    return text
