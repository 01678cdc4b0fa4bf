"""A server of curvatures with a folder: restarts, kills, full disks and damage."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from typing import Any

import numpy as np
import pytest
from curvature_federation import WAYS, Federation
from dying import dying
from full_disk import full
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepm_fast import CurvatureFedEPM
from fedepm_fast.federation.curvature_server import CurvatureServer

#: Python 3.12 and later warn of a fork beside the threads of pytest-xdist; the children start none.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def same(found: CurvatureServer, expected: CurvatureServer) -> None:
    assert (found.tau, found.round_of_x) == (expected.tau, expected.round_of_x)
    assert found.converged == expected.converged
    for name in ("members", "awaited", "x", "best"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_starts_anew_after_every_call_goes_on(way, tmp_path):
    federation = Federation(WAYS[way])
    expected, found = federation.server(), federation.server(tmp_path)

    def each(call: Any) -> None:
        nonlocal found
        assert np.array_equal(call(found), call(expected))
        found.close()
        found = federation.server(tmp_path)
        same(found, expected)

    for i in (0, 1, 3, 4):
        each(lambda s, i=i: s.join(0, i, federation.clients[i].join(s.x)))
    for tau in range(1, 6):
        each(lambda s: s.open_round().due)
        for i in expected.awaited.tolist()[tau == 2 :]:
            each(
                lambda s, i=i: s.receive(
                    s.tau, i, federation.clients[i].answer(s.x, due=i in s.open_round().due)
                )
            )
        if tau == 2:
            each(lambda s: s.join(2, 2, federation.clients[2].join(s.x)))
            each(lambda s: s.leave(3))
        each(lambda s: s.close_round())
        if tau == 3:
            each(lambda s: s.join(3, 3, federation.clients[3].join(s.x)))
            each(lambda s: s.leave(0))
    np.testing.assert_array_equal(
        federation.converge(found, 300)[-1], federation.converge(expected, 300)[-1]
    )


STEP = st.tuples(st.sampled_from(["join", "send", "leave", "open", "close"]), st.integers(0, 3))
WHOLE = Federation(CurvatureFedEPM(participation=0.5))


def perform(server: CurvatureServer, step: tuple[str, int], tau: int) -> Any:
    """One call, which may be repeated after a kill; its answer."""
    event, i = step
    client = WHOLE.clients[i]
    is_open = server.round_of_x == server.tau
    if event == "join":
        return server.join(server.round_of_x, i, client.join(server.x))
    if event == "send":
        due = is_open and i in server.open_round().due
        return server.receive(tau, i, client.answer(server.x, due=due))
    if event == "leave":
        return server.leave(i)
    if event == "open":
        return server.open_round().clients.tolist() if len(server.members) else None
    return server.close_round().tolist() if is_open and server.tau == tau else None


@given(st.lists(STEP, min_size=1, max_size=20), st.integers(1, 80))
@settings(max_examples=60)
def test_a_kill_at_any_moment_changes_nothing(steps, calls):
    steps = [("join", 0), *steps]
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                logging.disable()
                dying(calls)
                server = WHOLE.server(folder)
                for step in steps:
                    perform(server, step, server.tau)
                    os.write(writing, b".")
                os.write(writing, b"!")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        done = said.count(b".")
        expected = WHOLE.server()
        for step in steps[:done]:
            perform(expected, step, expected.tau)
        found = WHOLE.server(folder)
        if done < len(steps):  # the call that was cut short may have happened, and is repeated
            tau = expected.tau
            perform(expected, steps[done], tau)
            perform(found, steps[done], tau)
        same(found, expected)
        found.close()


@pytest.mark.parametrize("event", ["join", "open", "receive", "close"])
def test_a_call_that_cannot_be_written_changes_nothing(event, tmp_path):
    federation = Federation(CurvatureFedEPM())
    expected, found = federation.server(), federation.server(tmp_path)
    for server in (expected, found):
        federation.join(server, [0, 1, 2])
        federation.round(server)
        if event in ("receive", "close"):
            server.open_round()
        if event == "close":
            for i in (0, 1):
                server.receive(2, i, federation.clients[i].answer(server.x, due=True))

    def call(server: CurvatureServer) -> Any:
        if event == "join":
            return server.join(1, 3, federation.clients[3].join(server.x))
        if event == "open":
            return server.open_round().x
        if event == "receive":
            return server.receive(2, 1, federation.clients[1].answer(server.x, due=True))
        return server.close_round()

    (journal,) = tmp_path.glob("journal-*")
    with (
        full(journal.stat().st_size),
        pytest.raises(OSError, match=r"File too large: '.*/(journal-1|state\.npz)'"),
    ):
        call(found)
    same(found, expected)
    assert np.array_equal(call(found), call(expected))
    same(found, expected)
    found.close()
    same(federation.server(tmp_path), expected)


def test_a_damaged_or_foreign_folder_is_refused(tmp_path):
    federation = Federation(CurvatureFedEPM())
    with federation.server(tmp_path) as server:
        federation.join(server)
        federation.round(server)
        with pytest.raises(RuntimeError, match="in use by another server"):
            federation.server(tmp_path)
    with pytest.raises(ValueError, match="path holds a run with seed = 5, got 6"):
        Federation(CurvatureFedEPM(), seed=6).server(tmp_path)
    with pytest.raises(ValueError, match="path holds a run with start"):
        Federation(CurvatureFedEPM(), start=np.ones(5)).server(tmp_path)
    state = tmp_path / "state.npz"
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(ValueError, match="path must hold a server's state"):
        federation.server(tmp_path)
    state.unlink()
    with pytest.raises(ValueError, match=r"holds journal-1 without its state\.npz"):
        federation.server(tmp_path)
