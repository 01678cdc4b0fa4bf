"""How far long work is, where there is no terminal for a bar."""

from __future__ import annotations

import pytest

from fedepm_fast._common import progress
from fedepm_fast._common.progress import counting, duration


def test_a_log_gets_few_lines_of_what_is_left(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    with counting(True, 100, 1100) as shown:
        for _ in range(1000):
            now[0] += 1.0
            shown.update(["it failed" if now[0] == 3 else None])
    out, err = capsys.readouterr()
    lines = err.splitlines()
    # After 10, 20, 40 ... seconds; none when all is done.
    assert out == "" and len(lines) == 7
    assert lines[0] == "110 of 1100 runs after 10 s, 1 failed; about 16 min left"
    assert lines[-1] == "740 of 1100 runs after 11 min, 1 failed; about 6 min left"


def test_what_is_short_or_not_to_be_told_is_silent(capsys):
    for shown in (True, False):
        with counting(shown, 0, 3) as told:
            told.update([None] * 3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (99.4, "99 s"), (99.6, "2 min"), (3600, "60 min"), (9e4, "25.0 h")],
)
def test_times_for_people(seconds, text):
    assert duration(seconds) == text
