"""What functions of the user's raise says of which client, and in which round, it was."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fedepm_fast import FedEPM, FederatedData, ScalarLoss, SFedAvg, fit, run, run_callables
from fedepm_fast.algorithms import CurvatureFedEPM, FedAvg, FedDyn, Scaffold
from fedepm_fast.kernels import losses
from fedepm_fast.losses import Objective
from fedepm_fast.mechanisms import Law, Mechanism
from fedepm_fast.sweeps import Sweep, sweep

#: The label of the one row, client 3's, that no margin but about 0 is allowed for.
POISON = 100.0


def value(t, y):
    if y == 100.0 and abs(t) > 1e-3:
        raise ValueError("no value")
    return 0.5 * (t - y) ** 2


def gradient(t, y):
    if y == 100.0 and abs(t) > 1e-3:
        raise ValueError("no value")
    return t - y


LOSS = ScalarLoss(value=value, gradient=gradient, curvature=1.0, name="poisoned")


def poisoned(names=None, poison=POISON, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)).astype(dtype)
    labels = (X @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=120)).astype(dtype)
    labels[65] = poison
    return FederatedData(X, labels, [20] * 6, client_names=names)


NAMES = tuple("abcdef")


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize(
    ("algorithm", "tau"),
    [
        (FedEPM(mu0=5.0, noise="none", participation=1.0), 1),
        (CurvatureFedEPM(), 1),
        # Local steps are at other points than the server's, in round 0 already.
        (SFedAvg(noise="none", participation=1.0, learning_rate=0.1), 0),
        (FedDyn(noise="none", participation=1.0), 0),
        (Scaffold(noise="none", participation=1.0), 0),
        (FedAvg(noise="none", participation=1.0, batch_size=20, learning_rate=0.01), 0),
    ],
)
def test_a_run_says_where(algorithm, tau, names, engine):
    with pytest.raises(ValueError, match="no value") as caught:
        run(algorithm, poisoned(names), objective=LOSS, engine=engine)
    client = "'d'" if names else "3"
    assert caught.value.__notes__ == [f"in the loss of client {client}", f"in round {tau}"]


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_later_rounds_are_counted(engine):
    algorithm = SFedAvg(noise="none", participation=0.1, learning_rate=0.01)
    apart = set()
    for seed in range(8):
        done, notes = [], []
        for callback in (None, lambda info, done=done: done.append(info.tau)):
            with pytest.raises(ValueError, match="no value") as caught:
                run(
                    algorithm, poisoned(), objective=LOSS, rounds=30, engine=engine, seed=seed,
                    callback=callback,
                )  # fmt: skip
            notes.append(caught.value.__notes__)
        client, when = notes[0]
        assert notes[0] == notes[1] and client == "in the loss of client 3"
        apart.add(int(when.removeprefix("in round ")) - done[-1])
    # A round is done when its point is known: the client has local steps after that, if it is
    # selected, and all are asked what the objective is before.
    assert apart == {0, 1}


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_the_start_is_said_to_be_it(engine):
    with pytest.raises(ValueError, match="no value") as caught:
        run(FedEPM(), poisoned(), objective=LOSS, engine=engine, start=np.ones(3))
    assert caught.value.__notes__ == ["in the loss of client 3", "at the start of the run"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", [losses.values, losses.gradients, losses.values_and_gradients])
def test_calls_of_kernels_say_whose(call, threads, monkeypatch):
    monkeypatch.setattr(losses, "_PARALLEL_FROM", 1)
    data = poisoned()
    rows = losses.pack(data.features, data.labels, data.client_sizes, loss=LOSS.lanes())
    for clients in (None, [4, 3, 0]):
        with pytest.raises(ValueError, match="no value") as caught:
            call(rows, np.ones(3), clients=clients, threads=threads)
        assert caught.value.__notes__ == ["in the loss of client 3"]
    call(rows, np.ones(3), clients=[0, 4], threads=threads)
    with pytest.raises(ValueError, match="finite") as caught:
        call(rows, np.full(3, np.nan), threads=threads)
    assert not hasattr(caught.value, "__notes__")


@dataclass(frozen=True)
class Poisoned(Objective):
    name: ClassVar[str] = "poisoned_rows"
    task: ClassVar[str] = "regression"
    curvature: ClassVar[float] = 1.0

    def loss(self, t, b):
        if (np.abs(t[b == POISON]) > 1e-3).any():
            raise ArithmeticError("no value")
        return (t - b) ** 2 / 2

    def derivative(self, t, b):
        return t - b

    def second_derivative(self, t, b):
        return np.ones_like(t)


def test_one_error_raised_again_has_a_note_once():
    @dataclass(frozen=True)
    class Same(Poisoned):
        name: ClassVar[str] = "poisoned_by_one"
        error: ClassVar[Exception] = ArithmeticError("no value")

        def loss(self, t, b):
            if (np.abs(t[b == POISON]) > 1e-3).any():
                raise self.error
            return super().loss(t, b)

    with pytest.raises(ArithmeticError) as caught:
        run(CurvatureFedEPM(), poisoned(), objective=Same())
    assert caught.value.__notes__ == ["in the loss of client 3", "in round 1"]


def test_a_fit_names_the_client():
    data = poisoned()
    table = {f"x{j}": column for j, column in enumerate(data.features.T)}
    table |= {"y": data.labels, "held": np.repeat(list(NAMES), 20)}
    with pytest.raises(ArithmeticError, match="no value") as caught:
        fit(table, "y", "held", objective=Poisoned())
    assert caught.value.__notes__ == ["in the loss of client 'd'", "in round 1"]


def test_callables_say_the_round():
    def loss(x, i):
        if i == 2 and abs(x).max() > 0.1:
            return [][0]
        return (x - i) @ (x - i) / 2, x - i

    four = [lambda x, i=i: loss(x, i) for i in range(4)]
    with pytest.raises(IndexError) as caught:
        run_callables(SFedAvg(noise="none", learning_rate=0.1), four, np.zeros(3))
    assert caught.value.__notes__ == ["in the loss of client 2", "in round 0"]


class PoisonedLaw(Law):
    """Uniform numbers, but for one that a seed draws for client 2 in round 1."""

    name, symbol, order = "poisoned", "P(s)", 1
    bad: ClassVar[float] = np.nan

    def quantile(self, u):
        if (u == self.bad).any():
            raise OverflowError("no noise")
        return u - 0.5


@dataclass(frozen=True)
class PoisonedMechanism(Mechanism):
    """Whose account nobody needs."""

    name: ClassVar[str] = "poisoned"
    law: ClassVar[Law] = PoisonedLaw()

    def noise_multiplier(self, epsilon, uploads):
        return uploads / epsilon

    def one_release(self, multiplier, uploads):
        return multiplier / uploads

    def compose(self, apart, uploads):
        return apart * uploads

    def guarantee(self, epsilon):
        return "none"


def test_noise_of_ones_own_says_where(monkeypatch):
    drawn = []
    quantile = PoisonedLaw.quantile
    monkeypatch.setattr(PoisonedLaw, "quantile", lambda law, u: drawn.append(u) or quantile(law, u))
    mechanism = PoisonedMechanism(total_epsilon=50.0, public_scaling=True)
    algorithm = FedEPM(mechanism=mechanism, participation=1.0, mu0=50.0)
    settings = {"objective": "huber", "rounds": 3, "seed": 2**40}
    run(algorithm, poisoned(NAMES, poison=1.0), **settings)
    rounds = [u for u in drawn if u.shape == (6, 3)]
    for k, where in ((-2, "in round 1"), (-1, "in round 2")):
        monkeypatch.setattr(PoisonedLaw, "bad", rounds[k][2, 1])
        with pytest.raises(OverflowError, match="no noise") as caught:
            run(algorithm, poisoned(NAMES, poison=1.0), **settings)
        assert caught.value.__notes__ == ["in the noise of client 'c'", where]


def test_what_a_sweep_keeps_says_where():
    algorithm = FedEPM(mu0=5.0, noise="none")
    done = sweep(Sweep(algorithm, poisoned(), objective=LOSS, trials=1), jobs=1, progress=False)
    (text,) = done.failed.values()
    assert text == "ValueError: no value (in the loss of client 3, in round 1)"
