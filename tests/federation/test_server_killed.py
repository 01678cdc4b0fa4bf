"""The server's folder after a kill, or a loss of power."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
import pytest
import server_stories
from dying import dying
from hypothesis import given, settings
from hypothesis import strategies as st
from server_stories import BOTH, N, ending, is_open, make, program, same, story, told, upload

from fedepm_fast import FedEPM
from fedepm_fast.federation import _journal
from fedepm_fast.federation.server import Server
from fedepm_fast.privacy import LaplaceMechanism

#: Python 3.12 and later warn of a fork beside the threads of pytest-xdist; the children start none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


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
    algorithm = getattr(server_stories, name)
    code = f"""
import os, sys
sys.path.insert(0, "tests")
from server_stories import {name}, make, story
story(make({str(tmp_path)!r}, {name}))
os.kill(os.getpid(), 9)
"""
    killed = program(code)
    assert killed.wait() == -9, killed.communicate()
    killed.communicate()
    expected = make(None, algorithm)
    story(expected)
    with make(tmp_path, algorithm) as server:
        same(server, expected)
        for each in (server, expected):
            ending(each)
        same(server, expected)


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
