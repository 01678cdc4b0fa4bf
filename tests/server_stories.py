"""A server, what happens to it, and what is the same where nothing else did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepm_fast import FedEPM, Scaffold
from fedepm_fast.algorithms import Algorithm
from fedepm_fast.federation.server import Server

M, N, SEED = 6, 5, 11
ALGORITHM = FedEPM(participation=0.5, lam=1e-3, eta=2e-3, aggregation="uploaded")


#: One that keeps, shares and tells; compared with one that does nothing of it.
SCAFFOLD = Scaffold(participation=0.5, local_steps=2, learning_rate=0.5, noise="none")
BOTH = pytest.mark.parametrize("algorithm", [ALGORITHM, SCAFFOLD], ids=["fedepm", "scaffold"])


def make(path: Any = None, algorithm: Algorithm = ALGORITHM, **options: Any) -> Server:
    """A new server of these tests, or the one that is in a folder."""
    return Server(algorithm, M, N, seed=SEED, path=path, **options)


def told(server: Server, number: int) -> dict[str, float]:
    """What a client tells when it joins."""
    return {name: 1.0 + number for name in server.algorithm.tells}


def upload(number: int) -> np.ndarray:
    return np.cos(np.arange(N) + number)


def same(found: Server, expected: Server) -> None:
    """All that a server says is equal, to the last bit."""
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
    """What ends the round after that, and opens the next."""
    for i in server.awaited.tolist():
        assert server.receive(server.tau, i, upload(50 + i))
    server.close_round()
    server.open_round()


def program(code: str) -> subprocess.Popen[str]:
    """A process that runs this, in the folder of the repository."""
    root = Path(__file__).parents[1]
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=pipe, text=True)


def is_open(server: Server) -> bool:
    return server._open is not None


#: Everything that changes a server, as it is after its `story`.
CALLS: dict[str, Callable[[Server], Any]] = {
    "join": lambda server: server.join(5, upload(5), told=told(server, 5)),
    "leave": lambda server: server.leave(2),
    "receive": lambda server: server.receive(2, int(server.awaited[0]), upload(70)),
    "close_round": lambda server: server.close_round(),
    "open_round": lambda server: server.open_round(),
}
