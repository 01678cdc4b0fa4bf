"""Files appear complete or not at all, and nothing is left of what was not completed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from fedepm_fast._common.files import remove_drafts, replacing

KILLED = """
import os, signal, sys
from fedepm_fast._common.files import replacing
with replacing(sys.argv[1]) as draft:
    draft.write_text("half of a very long text")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_draft_of_a_killed_process_is_taken_for_the_next(tmp_path):
    path = tmp_path / "model.json"
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", KILLED, path])
        assert ended.returncode == -signal.SIGKILL
    assert [entry.name for entry in tmp_path.iterdir()] == [".model.json.draft"]
    with replacing(path) as draft:
        assert draft.read_text() == ""
        draft.write_text("whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.json"]
    assert path.read_text() == "whole"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_several_at_a_time_have_drafts_of_their_own(tmp_path):
    path, together = tmp_path / "model.json", Barrier(4)

    def write(text: str) -> Path:
        with replacing(path) as draft:
            together.wait(timeout=600)  # however slow the machine is
            draft.write_text(text)
            together.wait(timeout=600)
        return draft

    with ThreadPoolExecutor(4) as pool:
        drafts = list(pool.map(write, "abcd"))
    assert len(set(drafts)) == 4
    assert path.read_text() in "abcd" and list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="stop"), replacing(path) as draft:
        draft.write_text("new")
        raise RuntimeError("stop")
    with pytest.raises(FileExistsError), replacing(path, new=True) as draft:
        draft.write_text("new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_of_the_name_of_a_draft_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_text("of someone else")
    (tmp_path / ".a.draft").symlink_to(other)
    with replacing(tmp_path / "a", private=True) as draft:
        draft.write_text("mine")
    assert other.read_text() == "of someone else"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    remove_drafts(tmp_path / "a")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a", "other"]
