"""``fedepm sweep`` interrupted, killed, and two at a time."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import time

from commands import fedepm, start
from small_sweeps import SPECIFICATION, ids

from fedepm_fast import Store, Sweep

LONG = SPECIFICATION.replace("trials = 3", "trials = 40").replace("max_rounds = 2", "rounds = 3")


def stored(path) -> set[str]:
    """Ids in the store, as another program sees them meanwhile."""
    try:
        with Store(path, readonly=True, timeout=60) as store:
            return set(store.ids())
    except OSError:  # not there yet
        return set()


def wait_for(path, count, process) -> set[str]:
    """What is stored once there are so many, or the process has ended."""
    while len(found := stored(path)) < count and process.poll() is None:
        time.sleep(0.01)
    return found


def test_a_killed_sweep_leaves_a_whole_store_and_goes_on(capsys, spec):
    spec.write_text(LONG)
    path = spec.with_suffix(".sqlite")
    draw = random.Random(20221)
    seen: set[str] = set()
    for kill in range(1, 5):
        process = start("sweep", spec, "--quiet")
        seen |= wait_for(path, 60 * kill - draw.randrange(59), process)
        process.kill()
        process.communicate()
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        assert seen <= stored(path)  # nothing that was stored is lost
    assert len(stored(path)) < 320
    assert fedepm(capsys, "sweep", spec, "--quiet") == (0, "", "")
    assert timeless(path) == timeless(swept_at_once(capsys, spec))


def swept_at_once(capsys, spec):
    path = spec.with_name("at_once.sqlite")
    assert fedepm(capsys, "sweep", spec, "--quiet", "--store", path) == (0, "", "")
    return path


def timeless(path) -> list[tuple]:
    with Store(path, readonly=True) as store:
        table = store.table()
        histories = store.histories(table["run_id"])
    left_out = ("total_time", "local_time", "machine", "created")
    rows = zip(*(column for name, column in table.items() if name not in left_out), strict=True)
    return sorted((*map(repr, row), histories[row[0]]["objective"].tobytes()) for row in rows)


def test_processes_end_with_a_killed_sweep(spec):
    import psutil

    spec.write_text(LONG.replace("40", "4000"))
    process = start("sweep", spec, "--quiet", "--backend", "processes", "--jobs", 1)
    wait_for(spec.with_suffix(".sqlite"), 1, process)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    process.communicate()
    psutil.wait_procs(workers)  # returns when all of them are gone
    assert not any(worker.is_running() for worker in workers)


def test_two_programs_share_a_store(capsys, spec):
    spec.write_text(LONG.replace("40", "10"))
    path = spec.with_suffix(".sqlite")
    programs = [start("sweep", spec, "--quiet") for _ in range(2)]
    for program in programs:
        assert program.communicate() == ("", "")
        assert program.returncode == 0
    with Store(path, readonly=True) as store:
        assert sorted(store.ids()) == ids(Sweep.from_toml(spec))
    assert timeless(path) == timeless(swept_at_once(capsys, spec))


def test_ctrl_c_is_code_130_and_says_how_to_go_on(spec):
    spec.write_text(LONG)
    path = spec.with_suffix(".sqlite")
    process = start("sweep", spec)
    wait_for(path, 20, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    kept = re.fullmatch(
        rf"interrupted, (\d+) of 320 runs are kept in {path}: the same again does "
        r"the others\n",
        err,
    )
    assert kept is not None, err
    assert int(kept[1]) == len(stored(path)) >= 20
    assert out == f"320 runs in 8 cells, into {path}\n"
