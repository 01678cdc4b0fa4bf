"""Who may use the server's folder, and folders of earlier versions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from server_stories import ALGORITHM, CALLS, M, N, ending, make, program, same, story, upload

from fedepm_fast import FedEPM
from fedepm_fast._common.archives import read_archive, write_archive
from fedepm_fast.federation.server import Server

#: Python 3.12 and later warn of a fork beside the threads of pytest-xdist; the children start none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


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
sys.path.insert(0, "tests")
from server_stories import make
server = make({str(tmp_path)!r})
child = os.fork()
if child == 0:
    print(os.getpid(), flush=True)
time.sleep(600)
"""
    holder = program(code)
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
