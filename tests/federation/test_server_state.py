"""The server's folder: kills, full disks, damage, and who may use it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dying import dying
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import FedEPM, Scaffold
from fedepm_fast._common.archives import read_archive, write_archive
from fedepm_fast.algorithms import Algorithm
from fedepm_fast.federation import _journal
from fedepm_fast.federation.server import Server
from fedepm_fast.privacy import LaplaceMechanism

M, N, SEED = 6, 5, 11
ALGORITHM = FedEPM(participation=0.5, lam=1e-3, eta=2e-3, aggregation="uploaded")


#: Python 3.12 and later warn of a fork beside the threads of pytest-xdist; the children start none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Processes are killed here, not the machine: waiting for the disk adds nothing."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


#: One that keeps, shares and tells; compared with one that does nothing of it.
SCAFFOLD = Scaffold(participation=0.5, local_steps=2, learning_rate=0.5, noise="none")
BOTH = pytest.mark.parametrize("algorithm", [ALGORITHM, SCAFFOLD], ids=["fedepm", "scaffold"])


def make(path: Any = None, algorithm: Algorithm = ALGORITHM, **options: Any) -> Server:
    return Server(algorithm, M, N, seed=SEED, path=path, **options)


def told(server: Server, number: int) -> dict[str, float]:
    """What a client tells when it joins."""
    return {name: 1.0 + number for name in server.algorithm.tells}


def upload(number: int) -> np.ndarray:
    return np.cos(np.arange(N) + number)


def same(found: Server, expected: Server) -> None:
    assert found.tau == expected.tau
    for name in ("members", "awaited"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    i = expected.members
    np.testing.assert_array_equal(found.scales[i], expected.scales[i])
    if len(i):
        np.testing.assert_array_equal(found.x, expected.x)
    for client in expected.awaited.tolist():
        assert as_lists(found.message(client)) == as_lists(expected.message(client))


def as_lists(message: dict[str, Any]) -> dict[str, Any]:
    shared = {name: row.tolist() for name, row in message.get("shared", {}).items()}
    return {**message, "shared": shared}


def story(server: Server) -> None:
    """Two rounds, and half of a third, with clients that come, leave and come back."""
    for i in range(4):
        assert server.join(i, upload(i), told=told(server, i))
    for tau in range(3):
        chosen = server.open_round().clients.tolist()
        for i in chosen[: len(chosen) - (tau == 2)]:
            assert server.receive(tau, i, upload(10 * tau + i))
        if tau == 0:
            assert server.join(4, upload(40), told=told(server, 40))
            server.leave(2)
            assert server.join(2, upload(41), told=told(server, 41))
        elif tau == 1:
            server.leave(int(chosen[0]))
        if tau < 2:
            server.close_round()


def ending(server: Server) -> None:
    for i in server.awaited.tolist():
        assert server.receive(server.tau, i, upload(50 + i))
    server.close_round()
    server.open_round()


# Kills ----------------------------------------------------------------------------------

STEP = st.tuples(st.sampled_from(["join", "send", "leave", "open", "close"]), st.integers(0, 3))


def perform(server: Server, number: int, step: tuple[str, int], tau: int) -> Any:
    """One call, which may be repeated after a kill; its answer."""
    event, i = step
    if event == "join":
        return server.join(i, upload(number), told=told(server, number))
    if event == "send":
        return server.receive(tau, i, upload(number))
    if event == "leave":
        return server.leave(i)
    if event == "open":
        return server.open_round().clients.tolist() if len(server.members) else None
    if is_open(server) and server.tau == tau:
        return server.close_round().tolist()
    return None


def is_open(server: Server) -> bool:
    return server._open is not None


@BOTH
@given(steps=st.lists(STEP, min_size=1, max_size=30), calls=st.integers(1, 120))
@settings(max_examples=70)
def test_a_kill_at_any_moment_changes_nothing(algorithm, steps, calls):
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # whatever happens, it does not return
            try:
                dying(calls)
                server, expected = make(folder, algorithm), make(None, algorithm)
                for number, step in enumerate(steps):
                    tau = expected.tau
                    perform(expected, number, step, tau)
                    perform(server, number, step, tau)
                    os.write(writing, b"1")  # the answer is out
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, "rb") as answers:
            done = len(answers.read())
        os.waitpid(child, 0)
        expected = make(None, algorithm)
        for number, step in enumerate(steps[:done]):
            perform(expected, number, step, expected.tau)
        with make(folder, algorithm) as server:
            if done == len(steps):
                same(server, expected)
            for number, step in [*enumerate(steps)][done:]:
                tau = expected.tau
                answer = perform(expected, number, step, tau)
                again = perform(server, number, step, tau)
                # The first may have been done, without an answer, when the kill came.
                assert again == answer or number == done
                same(server, expected)
            for each in (server, expected):  # members that wait for the round to end, too
                if is_open(each):
                    each.close_round()
            same(server, expected)
        with make(folder, algorithm) as server:
            same(server, expected)


@pytest.mark.parametrize("name", ["ALGORITHM", "SCAFFOLD"])
def test_a_server_killed_in_earnest_is_restored(name, tmp_path):
    code = f"""
import os, sys
sys.path[:0] = ["tests", "tests/federation"]
from test_server_state import {name}, make, story
story(make({str(tmp_path)!r}, {name}))
os.kill(os.getpid(), 9)
"""
    killed = run(code)
    assert killed.wait() == -9, killed.communicate()
    killed.communicate()
    expected = make(None, globals()[name])
    story(expected)
    with make(tmp_path, globals()[name]) as server:
        same(server, expected)
        for each in (server, expected):
            ending(each)
        same(server, expected)


def run(code: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=pipe, text=True)


@pytest.mark.parametrize("mechanism", [None, LaplaceMechanism(total_epsilon=1.0, clip=1.0)])
def test_scales_and_leaving_are_remembered(mechanism, tmp_path):
    algorithm = FedEPM(participation=1.0, mechanism=mechanism, aggregation="equal")
    scale = None if mechanism is None else 0.25
    with Server(algorithm, 3, N, path=tmp_path) as server:
        for i in range(3):
            assert server.join(i, upload(i), scale=scale)
        server.leave(1)
        server.open_round()
        assert server.receive(0, 2, upload(9), scale=scale)
    with Server(algorithm, 3, N, path=tmp_path) as server:
        assert server.members.tolist() == [0, 2]
        assert server.awaited.tolist() == [0]
        assert server.close_round().tolist() == [2]
        assert server.join(1, upload(7), scale=scale)
    with Server(algorithm, 3, N, path=tmp_path) as server:
        known = np.nan if scale is None else scale
        np.testing.assert_array_equal(server.scales, [known, known, scale or 1.0])
        np.testing.assert_array_equal(server.Z, [upload(0), upload(7), upload(9)])


# A loss of power ------------------------------------------------------------------------


def test_what_nobody_waited_for_may_be_lost_with_the_power(tmp_path, monkeypatch, caplog):
    with make(tmp_path) as server:
        for i in range(4):
            assert server.join(i, upload(i))
        tau, x, chosen = server.open_round()
        assert server.receive(tau, int(chosen[0]), upload(7))
        assert server.receive(tau, int(chosen[1]), upload(8))
    path, boot = tmp_path / "journal-0", b"another".ljust(36)
    whole = path.read_bytes()
    monkeypatch.setattr(_journal, "_boot", lambda: boot)
    entry = (len(whole) - 56) // 7
    path.write_bytes(whole[: -entry - 3])  # an upload is gone, and a part of the other
    with make(tmp_path) as server:
        assert server.open_round().clients.tolist() == chosen.tolist()
        np.testing.assert_array_equal(server.x, x)
        np.testing.assert_array_equal(server.awaited, chosen)
        assert "lost 2 entries with the power" in caplog.text
        assert server.members.tolist() == [0, 1, 2, 3]
        for i in chosen:
            assert server.receive(tau, int(i), upload(int(i) + 20))
        expected = server.close_round().tolist()
    with make(tmp_path) as server:
        assert (server.tau, expected) == (1, chosen.tolist())


def test_what_was_waited_for_is_there_or_refused(tmp_path, monkeypatch):
    with make(tmp_path) as server:
        for i in range(4):
            assert server.join(i, upload(i))
    path = tmp_path / "journal-0"
    whole = path.read_bytes()
    monkeypatch.setattr(_journal, "_boot", lambda: b"another".ljust(36))
    for damaged in (whole[:-1], whole[:-300], whole[:-20] + b"\0" + whole[-19:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"path holds a damaged journal: .*journal-0"):
            make(tmp_path)
    path.write_bytes(whole)
    with make(tmp_path) as server:
        assert server.members.tolist() == [0, 1, 2, 3]


# Full disks -----------------------------------------------------------------------------


#: Bytes: an entry of a journal has a head of 40, and its vector.
ROOM = {"none": 0, "a little": 30, "an entry": 60 + 8 * N}

CALLS: dict[str, Callable[[Server], Any]] = {
    "join": lambda server: server.join(5, upload(5), told=told(server, 5)),
    "leave": lambda server: server.leave(2),
    "receive": lambda server: server.receive(2, int(server.awaited[0]), upload(70)),
    "close_round": lambda server: server.close_round(),
    "open_round": lambda server: server.open_round(),
}


#: What needs more than one entry.
LONG = [(SCAFFOLD, name, "an entry") for name in ("join", "open_round")]


@pytest.mark.parametrize(
    ("algorithm", "name", "room"),
    [*itertools.product([ALGORITHM, SCAFFOLD], CALLS, ["none", "a little"]), *LONG],
)
def test_a_call_on_a_full_disk_changes_nothing(algorithm, name, room, tmp_path):
    expected, server = make(None, algorithm), make(tmp_path, algorithm)
    for each in (expected, server):
        story(each)
        if name == "open_round":
            each.close_round()
    journal = tmp_path / f"journal-{server.tau}"
    with full(journal.stat().st_size + ROOM[room]):
        for _ in range(2):
            with pytest.raises(OSError, match=r"File too large: '.*/(journal-\d|state\.npz)'"):
                CALLS[name](server)
            same(server, expected)
    if name == "close_round":  # what a kill finds by now
        shutil.copytree(tmp_path, tmp_path / "copy")
        with make(tmp_path / "copy", algorithm) as killed:
            same(killed, expected)
            assert killed.close_round().tolist() == expected.close_round().tolist()
            same(killed, expected)
    for each in (server,) if name == "close_round" else (server, expected):
        CALLS[name](each)
    same(server, expected)
    server.close()
    server = make(tmp_path, algorithm)
    same(server, expected)
    for each in (server, expected):
        if not is_open(each):
            each.open_round()
        ending(each)
    same(server, expected)
    server.close()
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_only_the_owner_reads_the_files(tmp_path):
    folder = tmp_path / "server"
    with make(folder) as server:
        story(server)
        files = {p.name: stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()}
        assert files.keys() >= {"state.npz", "uploads.npy", f"journal-{server.tau}"}
        assert {mode for name, mode in files.items() if name != "lock"} == {0o600}
    (folder / "uploads.npy").chmod(0o644)  # as earlier versions made it
    with make(folder):
        assert stat.S_IMODE((folder / "uploads.npy").stat().st_mode) == 0o600


def test_a_failed_restart_takes_nothing_away(tmp_path):
    """Of a server without members, whose array is made anew."""
    m = 100_000
    with Server(ALGORITHM, m, N, path=tmp_path):
        pass
    with full(3_000_000), pytest.raises(OSError, match="File too large"):
        Server(ALGORITHM, m, N, path=tmp_path)
    assert {p.name for p in tmp_path.iterdir()} >= {"state.npz", "journal-0", "lock"}
    with Server(ALGORITHM, m, N, path=tmp_path) as server:
        assert server.join(0, upload(0))


def test_a_server_that_has_no_space_is_not_made(tmp_path):
    m = 100_000
    with full(3_000_000), pytest.raises(OSError, match=r"File too large: '.*/uploads\.npy'"):
        Server(ALGORITHM, m, N, path=tmp_path)
    assert list(tmp_path.iterdir()) == []
    for room, name in ((0, "journal-0"), (100, "state.npz"), (3_000_000, "uploads.npy")):
        with full(room), pytest.raises(OSError, match=rf"File too large: '.*/{name}'"):
            Server(ALGORITHM, m, N, path=tmp_path / "other")
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes").write_text("of its owner")
    (tmp_path / "lock").write_text("")
    with full(3_000_000), pytest.raises(OSError, match="File too large"):
        Server(ALGORITHM, m, N, path=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", "notes"]
    for folder in (tmp_path, tmp_path / "other"):
        with Server(ALGORITHM, m, N, path=folder) as server:
            assert server.join(m - 1, upload(0))
        found = (folder / "uploads.npy").stat()
        assert found.st_size <= 512 * found.st_blocks  # no holes, where a full disk would kill


# Damage ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[ALGORITHM, SCAFFOLD], ids=["fedepm", "scaffold"])
def left(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("left")
    with make(folder, request.param) as server:
        story(server)
    expected = make(None, request.param)
    story(expected)
    ending(expected)
    return folder, expected


FILES = ["state.npz", "uploads.npy", "journal-2"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_refused(name, left, tmp_path):
    path = shutil.copytree(left[0], tmp_path / "copy") / name
    whole = path.read_bytes()
    for size in sorted({0, 1, 60, 200, len(whole) // 2, len(whole) - 48, len(whole) - 1}):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=rf"^path .*{name.split('.')[0]}"):
            make(path.parent, left[1].algorithm)
        assert path.stat().st_size == size
    path.write_bytes(whole + bytes(8))
    if name == "uploads.npy":
        with pytest.raises(ValueError, match=r"uploads\.npy"):
            make(path.parent, left[1].algorithm)
    path.unlink()
    with pytest.raises(ValueError, match=rf"^path .*{name.split('.')[0]}"):
        make(path.parent, left[1].algorithm)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_refused_or_tells_nothing(name, left, tmp_path):
    folder, expected = left
    path = shutil.copytree(folder, tmp_path / "copy") / name
    whole, refused = path.read_bytes(), 0
    rng = np.random.default_rng(5)
    count = 60
    for at in rng.choice(len(whole), count, replace=False).tolist():
        shutil.rmtree(path.parent)
        shutil.copytree(folder, path.parent)
        flipped = bytes([whole[at] ^ (1 << int(rng.integers(8)))])
        path.write_bytes(whole[:at] + flipped + whole[at + 1 :])
        try:
            server = make(path.parent, left[1].algorithm)
        except ValueError as error:
            assert name.split(".")[0] in str(error)
            refused += 1
        else:  # a date, say, or the upload of a client that left
            with server:
                ending(server)
                same(server, expected)
    assert refused > count / 5


def test_the_upload_of_a_member_is_checked_in_every_byte(tmp_path):
    with make(tmp_path) as server:
        for i in range(M):
            assert server.join(i, upload(i))
        server.open_round()
        server.close_round()
    path = tmp_path / "uploads.npy"
    whole = path.read_bytes()
    for at in range(len(whole) - 8 * M * N, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(
            ValueError, match=r"path holds damaged uploads: .*uploads\.npy: that of"
        ):
            make(tmp_path)
    path.write_bytes(whole)
    make(tmp_path).close()


# Who may use it -------------------------------------------------------------------------

IN_USE = r"path is in use by another server, of process {}: .*; close that one"


def test_a_folder_is_one_server_s_until_it_is_closed(tmp_path):
    server = make(tmp_path)
    story(server)
    with pytest.raises(RuntimeError, match=IN_USE.format(os.getpid())):
        make(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(RuntimeError, match="path is in use"):
        make(tmp_path / "link")
    server.close()
    server.close()
    for call in CALLS.values():
        if call is not CALLS["open_round"]:  # it is open
            with pytest.raises(RuntimeError, match="the server is closed"):
                call(server)
    with make(tmp_path) as server:
        expected = make()
        story(expected)
        same(server, expected)
    with pytest.raises(ValueError, match="seed = 11, got 1"):
        Server(ALGORITHM, M, N, seed=1, path=tmp_path)
    server = make(tmp_path)  # that one does not hold it
    del server
    make(tmp_path).close()


def test_a_process_that_dies_gives_the_folder_free(tmp_path):
    code = f"""
import os, sys, time
sys.path[:0] = ["tests", "tests/federation"]
from test_server_state import make
server = make({str(tmp_path)!r})
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
"""
    holder = run(code)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(RuntimeError, match=IN_USE.format(holder.pid)):
            make(tmp_path)
        holder.kill()
        holder.wait()
        make(tmp_path).close()  # the child that it leaves behind does not hold it
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


def test_a_forked_process_has_no_part_in_the_server(tmp_path):
    server = make(tmp_path)
    story(server)
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for name in ("join", "leave", "receive", "close_round"):
                with contextlib.suppress(OSError, ValueError):
                    try:
                        CALLS[name](server)
                    except RuntimeError as error:
                        refused += "forked from" in str(error)
            server.close()
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    with pytest.raises(RuntimeError, match="path is in use"):
        make(tmp_path)
    expected = make()
    story(expected)
    for each in (server, expected):
        ending(each)
    same(server, expected)


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_a_server_whose_lock_is_gone_stops(way, tmp_path):
    server, expected = make(tmp_path), make()
    for each in (server, expected):
        story(each)
    (tmp_path / "lock").unlink()
    if way == "replaced":
        other = make(tmp_path)
    for call in CALLS.values():
        if call is not CALLS["open_round"]:
            with pytest.raises(RuntimeError, match=r"no longer its own: .*lock was removed"):
                call(server)
    if way == "replaced":
        for each in (other, expected):
            ending(each)
        same(other, expected)


# Earlier versions -----------------------------------------------------------------------


def older(folder: Path, server: Server, inbox: dict[int, np.ndarray], scales: bool) -> None:
    """The state of a server as the first versions wrote it, with uploads still to be taken."""
    saved = {"tau": server.tau, "members": np.isin(np.arange(M), server.members)}
    if scales:
        saved["scales"] = server.scales
    assert server._folder is not None
    Z, slots = np.array(server.Z), np.zeros((3, N))
    for slot, (client, row) in enumerate(inbox.items()):
        Z[client], slots[slot] = 1e9, row
    np.savez(
        folder / "state.npz",
        settings=json.dumps(server._settings()),
        inbox=np.array([*enumerate(inbox)], np.int64).reshape(-1, 2),
        **saved,
    )
    np.save(folder / "uploads.npy", Z)
    np.save(folder / "inbox.npy", slots)


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("waiting", [(), (1, 3)])
def test_a_state_of_an_earlier_version_is_read(waiting, scales, tmp_path):
    now = tmp_path / "now"
    server = Server(FedEPM(), M, N, path=now)
    for i in range(5):
        assert server.join(i, upload(i))
    server.open_round()
    server.close_round()
    old = tmp_path / "old"
    old.mkdir()
    older(old, server, {i: np.array(server.Z[i]) for i in waiting}, scales)
    for _ in range(2):
        with Server(FedEPM(), M, N, path=old) as restored:
            same(restored, server)
            np.testing.assert_array_equal(restored.Z, server.Z)
    assert not (old / "inbox.npy").exists()
    assert sorted(p.name for p in old.iterdir()) == sorted(p.name for p in now.iterdir())

    older(old, server, {1: np.zeros(N)}, scales)
    for name in ("inbox.npy", "uploads.npy"):
        whole = (old / name).read_bytes()
        (old / name).write_bytes(whole[:-8])
        with pytest.raises(ValueError, match=name):
            Server(FedEPM(), M, N, path=old)
        (old / name).write_bytes(whole)


@pytest.mark.parametrize("header", [{"arrays": ["members", "scales", "sums"]}, {}])
def test_a_state_that_remembers_no_point_is_read(header, tmp_path):
    """As it was before servers of algorithms that share, keep or tell."""
    with make(tmp_path) as server:
        story(server)
    header, arrays = read_archive(tmp_path / "state.npz")[0] | header, {}
    if len(header["arrays"]) > 3:
        del header["arrays"]
    with np.load(tmp_path / "state.npz") as saved:
        arrays = {name: saved[name] for name in ("members", "scales", "sums")}
    write_archive(tmp_path / "state.npz", header, arrays)
    expected = make()
    story(expected)
    for _ in range(2):
        with make(tmp_path) as server:
            same(server, expected)
            ending(server)
        ending(expected)
