"""The server's folder on a full disk, and damaged."""

from __future__ import annotations

import itertools
import shutil
import stat

import numpy as np
import pytest
from full_disk import full
from server_stories import (
    ALGORITHM,
    CALLS,
    SCAFFOLD,
    M,
    N,
    ending,
    is_open,
    make,
    same,
    story,
    upload,
)

from fedepm_fast.federation.server import Server

#: Bytes: an entry of a journal has a head of 40, and its vector.
ROOM = {"none": 0, "a little": 30, "an entry": 60 + 8 * N}

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
