"""The stages of a run whose clients are elsewhere: theirs are one task of each worker a round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import _engine_state as arrays
from ..kernels import _loop as loop
from . import _worker as worker
from ._clients import RETRIES, each, told_of_losses
from ._problem import RemoteProblem

Array = NDArray[np.float64]


class RemoteStages:
    """Selection, ENS and noise of the start here, all else where the rows are; see `_loop`.

    A task takes its clients from the server's point to their uploads: gradients of all of them,
    and of those that take part the local steps, and noise. Were the run to end at this point, the
    last two would be in vain.
    """

    spoils = False
    work_size = 0

    def __init__(self, algorithm: Any, problem: RemoteProblem, plan: Any) -> None:
        self.algorithm, self.problem = algorithm, problem
        data, bounds = problem.clients, (np.empty(0),) * 3
        d, told = data.client_sizes, algorithm.known(problem)
        self.clients = arrays.ClientProblem(problem.reg, algorithm.steps(d), *bounds, told, d)
        self.constants = np.array(algorithm.constants(problem.n_parameters, None), np.float64)
        self.value_at_start, self.accuracies = problem.value_at_start, problem.accuracies

    def workspace(self) -> None:
        """Losses are computed elsewhere."""

    def compile(self, run: Any, *, stepwise: bool) -> None:
        """Workers pack their rows, and compile what there is to."""
        from ..kernels.engine import select
        from ..kernels.engine._one_by_one import OneByOne, nobody

        data, problem = self.problem.clients, self.problem
        objective, weight, m, weight_sum = problem.described
        spec = worker.Spec(
            self.algorithm, objective, weight, m, weight_sum, self.clients, run.settings,
            run.key, run.given,
        )  # fmt: skip
        with told_of_losses():
            self._working = [
                data.client.submit(worker.Working, parcel, spec, pure=False, retries=RETRIES)
                for parcel in data.parcels
            ]
            data.client.gather([data.client.submit(_ready, one) for one in self._working])
        self._aggregate = self.algorithm.stages(nobody())[0]
        self._select = select
        self._call = OneByOne(None, (self.clients, run.settings, run.key, run.given, run.state))
        if stepwise:
            self.accuracies(np.empty((0, self.problem.n_parameters)))

    def begin(self, settings: Any, key: Any, given: Any, initial: Any, state: Any) -> None:
        from ..kernels.engine import Engine

        Engine.begin(settings, key, given, initial, state)

    def rounds(
        self, problem: Any, settings: Any, key: Any, given: Any, state: Any, history: Any,
        tau: int, last: int,
    ) -> tuple[int, int]:  # fmt: skip
        return loop.rounds(  # type: ignore[no-any-return]
            self.select, self.aggregate, self.evaluate, self.local_round, self.upload,
            None, problem, settings, key, given, state, history, tau, last,
        )  # fmt: skip

    # The stages, each of the arguments (rows, problem, settings, key, given, state, tau).

    def select(self, *arguments: Any) -> bool:
        return self._call(self._select, arguments[-1])

    def aggregate(self, *arguments: Any) -> bool:
        return self._call(self._aggregate, arguments[-1])

    def evaluate(self, *arguments: Any) -> bool:
        """What workers answer to the point; of f and the mean gradient the same sums as always."""
        settings, state, tau = arguments[2], arguments[-2], arguments[-1]
        data, S = self.problem.clients, state.selected[: state.n_selected[0]].copy()
        m = len(state.Z)
        ends = tau >= settings.max_rounds or (tau + 1) * settings.local_steps > (
            settings.max_iterations
        )
        messages = []
        for numbers in data.numbers:
            own = S[np.isin(S, numbers)]
            messages.append(
                worker.Message(
                    tau, state.x, state.shared, own, state.W[own], state.Z[own],
                    state.kept[:, own], not ends,
                )
            )  # fmt: skip
        self._messages = messages
        self._replies = data.ask(worker.Working.round, each(messages), of=self._working)
        for numbers, reply in zip(data.numbers, self._replies, strict=True):
            state.values[numbers], state.G[numbers] = reply.values, reply.G
        state.seconds[0] = sum(reply.seconds[0] for reply in self._replies)
        others = np.ones(m, np.bool_)
        others[S] = False
        mean, total, squares = state.mean, 0.0, 0.0
        mean[:] = 0.0
        for i in (*S.tolist(), *np.flatnonzero(others).tolist()):
            mean += state.G[i]
        for value in state.values.tolist():
            total += value
        for slope in (mean / m).tolist():
            squares += slope * slope
        state.totals[:] = total, squares
        return True

    def local_round(self, *arguments: Any) -> bool:
        """The selected clients' parameters, which came with their gradients."""
        state = arguments[-2]
        state.seconds[0] += sum(reply.seconds[1] for reply in self._replies)
        if not all(reply.ok for reply in self._replies):
            return False
        for message, reply in zip(self._messages, self._replies, strict=True):
            S = message.selected
            state.W[S], state.Z[S], state.kept[:, S] = reply.W, reply.Z, reply.kept
            state.noise_scale[S], state.snr[S] = reply.noise_scale, reply.snr
        return True

    def upload(self, *arguments: Any) -> bool:
        """Uploads came with them, too."""
        return True


RemoteProblem.stages = RemoteStages


def _ready(working: Any) -> None:
    """A task that ends where a worker is ready."""
