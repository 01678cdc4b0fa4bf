"""A private client's ledger: damaged, of the past, of another budget, and whose it is."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from private_clients import ROOT, N, client

from fedepm_fast import FedEPM
from fedepm_fast._common import files as _files
from fedepm_fast.federation._ledger import Entry, Ledger
from fedepm_fast.federation._private_rows import PrivateRows
from fedepm_fast.privacy import GaussianMechanism, LaplaceMechanism

pytestmark = pytest.mark.usefixtures("no_disk")


def test_a_damaged_ledger_is_refused(tmp_path):
    path = tmp_path / "0"
    one = client(path)
    one.train(np.zeros(N), 0)
    whole, kept = path.read_bytes(), Ledger.read(one._ledger)
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        for use in (lambda: client(path), lambda: one.train(np.zeros(N), 1), lambda: one.spent):
            with pytest.raises(ValueError, match="path must hold a client's ledger"):
                use()
        assert path.stat().st_size == size  # nor written over
    refused = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = one._ledger.read()
        except ValueError as error:
            assert "path must hold a client's ledger" in str(error)
            refused += 1
        else:  # a date, say
            assert found[:3] == kept[:3]
            np.testing.assert_array_equal(found.point, kept.point)
    assert refused > len(whole) / 7 / 2
    path.write_bytes(whole)
    with np.load(path) as saved:
        parts = dict(saved)
    parts["header"] = str(parts["header"]).replace('"uploads": 1', '"uploads": 0')
    with path.open("wb") as file:  # a hand that edits the count
        np.savez(file, **parts)
    with pytest.raises(ValueError, match="its digest is another"):
        client(path)
    path.unlink()
    with pytest.raises(ValueError, match="path held a client's ledger, which is gone"):
        client(path)
    assert not path.exists()


def test_a_link_leads_to_the_ledger(tmp_path):
    one = client(tmp_path / "0")
    (tmp_path / "link").symlink_to("0")
    upload = client(tmp_path / "link").train(np.zeros(N), 0)
    np.testing.assert_array_equal(one.train(np.ones(N), 0).values, upload.values)
    assert (tmp_path / "link").is_symlink() and not (tmp_path / "link.lock").exists()


def test_a_ledger_of_the_past_is_refused(tmp_path):
    one = client(tmp_path / "0")
    past = (tmp_path / "0").read_bytes()
    one.train(np.zeros(N), 0)
    (tmp_path / "0").write_bytes(past)
    with pytest.raises(ValueError, match="a ledger of the past, of 0 uploads after 1"):
        one.train(np.zeros(N), 1)


@pytest.mark.parametrize("other, message", [
    ({"uploads": 4}, "with uploads = 3, got 4"),
    ({"uploads": 2}, "with uploads = 3, got 2"),
    ({"i": 1}, "with client = 0, got 1"),
    ({"rows": np.zeros((2, N)), "labels": [0, 1]}, "with rows = "),
    ({"mechanism": LaplaceMechanism(total_epsilon=2.0, clip=2.0)}, "with mechanism = .* got .*2.0"),
    ({"mechanism": LaplaceMechanism(total_epsilon=1.0, clip=1.0)}, "with mechanism = "),
    ({"mechanism": GaussianMechanism(total_epsilon=1.0, clip=2.0)}, "mechanism = .*'gaussian'"),
])  # fmt: skip
def test_a_ledger_of_another_budget_is_refused(other, message, tmp_path):
    client(tmp_path / "0").train(np.zeros(N), 0)
    if "mechanism" in other:
        other = {"algorithm": FedEPM(local_steps=3, participation=1.0, **other)}
    with pytest.raises(ValueError, match=message):
        client(tmp_path / "0", **other)


def test_a_ledger_is_one_process_s_until_it_dies(tmp_path):
    one = client(tmp_path / "0")
    code = f"""
import sys, time
from fedepm_fast.federation._ledger import Ledger
with Ledger({str(tmp_path / "0")!r}, {{}}, {N}).locked():
    print("locked", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        found = []
        waiting = threading.Thread(target=lambda: found.append(one.train(np.zeros(N), 0)))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive() and not found
    finally:
        holder.kill()
        holder.communicate()
    waiting.join()
    assert len(found) == 1 and one.spent.uploads == 1


def test_threads_with_one_ledger_get_one_upload(tmp_path):
    clients = [client(tmp_path / "0") for _ in range(4)]
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda c=c: found.append(c.train(np.zeros(N), 0).values.tobytes()))
        for c in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and set(found) == {clients[0]._ledger.read().point.tobytes()}
    assert clients[0].spent.uploads == 1


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_a_client_whose_lock_is_gone_hands_out_no_second_upload(way, tmp_path, monkeypatch):
    one, compute = client(tmp_path / "0"), PrivateRows.upload
    others, written = [], []

    def meanwhile(self: PrivateRows, *given: Any) -> Any:
        entry = compute(self, *given)
        monkeypatch.undo()
        (tmp_path / "0.lock").unlink()
        if way == "replaced":
            (tmp_path / "0.lock").write_bytes(b"of a ledger\n")
        others.append(client(tmp_path / "0").train(np.ones(N), 0))
        written.append((tmp_path / "0").read_bytes())
        return entry

    monkeypatch.setattr(PrivateRows, "upload", meanwhile)
    mine = one.train(np.zeros(N), 0)
    np.testing.assert_array_equal(mine.values, others[0].values)
    assert mine.scale == others[0].scale
    # The ledger has that upload still: two that overwrote one another would count as one, too.
    assert (tmp_path / "0").read_bytes() == written[0]
    np.testing.assert_array_equal(one._ledger.read().point, others[0].values)
    # Nor does a first point replace an upload, or a new ledger one that is there.
    two, read = client(tmp_path / "1"), Ledger.read

    def joined(ledger: Ledger) -> Any:
        entry = read(ledger)
        monkeypatch.undo()
        (tmp_path / "1.lock").unlink()
        others.append(client(tmp_path / "1").train(np.ones(N), 0))
        return entry

    monkeypatch.setattr(Ledger, "read", joined)
    np.testing.assert_array_equal(two.join(np.zeros(N)).values, others[1].values)
    with pytest.raises(FileExistsError, match="1"):
        two._ledger._write(Entry(), new=True)
    assert two.spent.uploads == 1


def test_a_client_waits_for_the_lock_that_is_there(tmp_path):
    one = client(tmp_path / "0")
    with one._ledger.locked():
        (tmp_path / "0.lock").rename(tmp_path / "moved")
        (tmp_path / "0.lock").write_bytes(b"of a ledger\n")
        with client(tmp_path / "0")._ledger.locked():  # another file, which nobody holds
            waiting = threading.Thread(target=one.train, args=(np.zeros(N), 0))
            waiting.start()
            waiting.join(0.2)
            assert waiting.is_alive()
    waiting.join()
    assert one.spent.uploads == 1


def test_no_draft_of_a_killed_client_remains(tmp_path):
    one = client(tmp_path / "0")
    code = f"""
import os, pathlib, sys
sys.path.insert(0, "tests")
from pathlib import Path
import numpy as np
from private_clients import N, client
one = client(Path({str(tmp_path)!r}) / "0")
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)
one.train(np.zeros(N), 0)
"""
    for number in range(2):
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == -9
        (draft,) = tmp_path.glob(".*")  # that of the kill before is gone
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600
        assert one.spent.uploads == 0
        if number == 1:
            client(tmp_path / "0")
            assert not [*tmp_path.glob(".*")]
    kept = tmp_path / ".0.abcdefgh.abcdefgh"  # of the ledger "0.abcdefgh"
    kept.touch()
    compute = one._rows.upload
    one._rows.upload = lambda *given: [*tmp_path.glob(".*")] == [kept] and compute(*given)  # type: ignore
    one.train(np.zeros(N), 0)
    assert [*tmp_path.glob(".*")] == [kept]
    assert stat.S_IMODE((tmp_path / "0").stat().st_mode) == 0o600


def test_an_upload_that_cannot_be_written_is_not_handed_out(tmp_path, monkeypatch):
    one = client(tmp_path / "0")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/0'"):
        one.train(np.zeros(N), 0)
    assert one.spent.uploads == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "0.lock"]
