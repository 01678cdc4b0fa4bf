"""Ledgers that are closed, for what is left of their budgets to be another federation's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dying import dying
from problems import small_data

from fedepm_fast import FedEPM
from fedepm_fast.federation._ledger import Ledger
from fedepm_fast.federation.client import PrivateClient, UploadRefused, ledger_account
from fedepm_fast.privacy import Account, GaussianMechanism, LaplaceMechanism

pytestmark = pytest.mark.usefixtures("no_disk")

M, N, UPLOADS = 4, 3, 8
DATA = small_data(M, N, seed=1)
LAWS = [LaplaceMechanism, GaussianMechanism]


def client(
    path: Path, law: Any = LaplaceMechanism, *, columns: int = N, uploads: int = UPLOADS,
    after: Path | None = None, index: int = 0, **options: Any,
) -> PrivateClient:  # fmt: skip
    mechanism = law(**{"total_epsilon": 1.0, "clip": 2.0, **options})
    features, labels = DATA.client(0)
    return PrivateClient(
        FedEPM(mechanism=mechanism, lam=0.0, mu0=1e-9, eta=0.5), features[:, :columns], labels,
        index=index, clients=M, uploads=uploads, path=path, after=after,
    )  # fmt: skip


def train(one: PrivateClient, rounds: int) -> None:
    for tau in range(rounds):
        one.train(np.zeros(one._rows.problem.n_parameters), tau)


@pytest.mark.parametrize("moments", [0, 2])
@pytest.mark.parametrize("law", LAWS)
def test_uploads_that_were_not_made_are_another_federation_s(law, moments, tmp_path):
    delta = 0.0 if law is LaplaceMechanism else 1e-6
    one = client(tmp_path / "0", law)
    train(one, 3)
    z = one._rows.multiplier
    assert one.account == Account().add(law.name, z, 3) == ledger_account(tmp_path / "0")
    # Other columns, rounds and clip, another place among the clients, another name of the ledger.
    options: Any = {"columns": 2, "uploads": 4, "clip": 0.5, "moments": moments, "index": 2}
    two = client(tmp_path / "1", law, after=tmp_path / "0", **options)
    assert two.spent[:2] == (0, 4 + moments)
    assert two.spent.epsilon == pytest.approx(one.spent.epsilon, rel=1e-12)
    assert 1.0 - 1e-12 < two.spent.total <= 1.0
    # 5 of 8 uploads were left: in epsilon, or in its square.
    share = (4 + moments) / 5 * 8 if law is LaplaceMechanism else ((4 + moments) / 5 * 8) ** 0.5
    assert two._rows.multiplier == pytest.approx(
        share * z / (8 if law is LaplaceMechanism else 8**0.5), rel=1e-9
    )
    # In coordinates, too, the noise is as much more than that of a client without a past.
    fresh, matrix = client(tmp_path / "fresh", law, **options), np.diag([2.0, 0.5])
    scale, of_fresh = (each.train(np.zeros(2), 0, matrix).scale for each in (two, fresh))
    ratio = float(two._rows.multiplier / fresh._rows.multiplier)
    assert ratio == pytest.approx(8 / 5 if law is LaplaceMechanism else (8 / 5) ** 0.5, rel=1e-9)
    assert scale is not None and scale == pytest.approx(ratio * of_fresh, rel=1e-9)
    for tau in range(1, 4 + moments):
        two.train(np.zeros(2), tau)
    with pytest.raises(UploadRefused, match=f"all {4 + moments} uploads have been made"):
        two.train(np.zeros(2), 9)
    assert 1.0 - 1e-9 < two.account.epsilon(delta) <= 1.0 + 1e-15
    assert two.account == one.account + Account.of(
        two._mechanism, two._rows.multiplier, 4 + moments
    )
    assert two.guarantee.startswith("each client: epsilon <= 1 ")
    assert two.guarantee.endswith("replace-one, with what it spent in federations before")
    with pytest.raises(ValueError, match="after must leave something of total_epsilon = 1 at"):
        client(tmp_path / "2", law, after=tmp_path / "1")
    # It may state more in all.
    three = client(tmp_path / "3", law, after=tmp_path / "1", total_epsilon=1.5)
    assert three.spent.total == pytest.approx(1.5, rel=1e-12)
    assert three.spent.epsilon == pytest.approx(1.0, rel=1e-12)
    assert three.account == two.account == ledger_account(tmp_path / "3")


def test_a_closed_ledger_repeats_its_last_upload_and_makes_none(tmp_path):
    one = client(tmp_path / "0", moments=2)
    last = one.train(np.zeros(N), 0)
    two = client(tmp_path / "1", after=tmp_path / "0")
    for old in (one, client(tmp_path / "0", moments=2)):
        np.testing.assert_array_equal(old.train(np.ones(N), 0).values, last.values)
        with pytest.raises(
            UploadRefused,
            match=r"nothing: its ledger is closed, for another federation \(1 of 10",
        ):
            old.train(np.zeros(N), 1)
        assert old.spent.uploads == 1
    # It follows one ledger, and is followed by one.
    with pytest.raises(ValueError, match=r"after must be a ledger whose budget is free, .*/1"):
        client(tmp_path / "2", after=tmp_path / "0")
    assert not (tmp_path / "2").exists()
    unsent = client(tmp_path / "3", moments=2)
    client(tmp_path / "4", after=tmp_path / "3")
    with pytest.raises(UploadRefused, match="its ledger is closed"):
        unsent.moments(1.0)
    unsent.join(np.zeros(N))
    with pytest.raises(UploadRefused, match="its ledger is closed"):
        unsent.train(np.zeros(N), 0)
    # A new process says the same again, or nothing, and gets what was settled.
    for after in (tmp_path / "0", None):
        again = client(tmp_path / "1", after=after)
        assert again.spent == two.spent and again.account == two.account
        assert again._rows.multiplier == two._rows.multiplier
    (tmp_path / "0").unlink()  # what it had is in the next one
    assert client(tmp_path / "1", after=tmp_path / "0").account == two.account
    with pytest.raises(ValueError, match=r"path holds a ledger with after = '.*/0', got '.*/3'"):
        client(tmp_path / "1", after=tmp_path / "3")


@pytest.mark.parametrize("law", LAWS)
def test_ledgers_of_earlier_versions_go_on(law, tmp_path):
    new = client(tmp_path / "0", law)
    train(new, 3)
    spent = new.spent
    # They told neither the noise nor what was spent before, which was nothing.
    ledger = Ledger(tmp_path / "0", {})
    with ledger.locked():
        entry = ledger.read()
        for name in ("after", "before", "multiplier"):
            del ledger.settings[name]
        ledger._write(entry)
    old = client(tmp_path / "0", law)
    assert old._rows.multiplier == new._rows.multiplier and old.spent == spent
    assert ledger_account(tmp_path / "0") == old.account == Account.of(
        old._mechanism, old._rows.multiplier, 3
    )  # fmt: skip
    old.train(np.zeros(N), 3)
    assert client(tmp_path / "1", law, after=tmp_path / "0").account == old.account


def test_a_ledger_that_is_there_follows_none_later(tmp_path):
    for name in "01":
        client(tmp_path / name).train(np.zeros(N), 0)
    with pytest.raises(ValueError, match=r"path holds a ledger with after = '', got '.*/0'"):
        client(tmp_path / "1", after=tmp_path / "0")
    client(tmp_path / "0").train(np.zeros(N), 1)  # which is open still


@pytest.mark.parametrize("options, message", [
    ({"after": "none"}, "after must be a ledger, there is none at .*/none"),
    ({"after": "1"}, "after must be a ledger, there is none at .*/1"),
    ({"after": "0", "law": LaplaceMechanism}, "at delta = 0, got a ledger that has spent inf"),
    ({"after": "0", "total_epsilon": 0.1}, "after must leave something of total_epsilon = 0.1"),
    ({"after": "0", "uploads": 0}, "uploads must be an integer"),
    ({"after": "0", "index": 9}, "index must be an integer"),
])  # fmt: skip
def test_what_is_wrong_closes_nothing(options, message, tmp_path):
    one = client(tmp_path / "0", GaussianMechanism)
    train(one, 4)
    options = {"law": GaussianMechanism, **options}
    options["after"] = tmp_path / options["after"]
    with pytest.raises(ValueError, match=message):
        client(tmp_path / "1", **options)
    assert not (tmp_path / "1").exists()
    one.train(np.zeros(N), 4)


def test_records_that_were_hidden_do_not_hide_clients_later(tmp_path):
    whole: Any = {"neighbours": "client"}
    train(client(tmp_path / "0", **whole), 2)
    assert ledger_account(tmp_path / "0").neighbours == "client"
    train(client(tmp_path / "1", after=tmp_path / "0", **whole), 2)
    two = client(tmp_path / "2", after=tmp_path / "1")
    train(two, 1)
    assert two.account.neighbours == "record" and "for each record" in two.guarantee
    with pytest.raises(ValueError, match="after must hide whole clients, as the mechanism does"):
        client(tmp_path / "3", after=tmp_path / "2", **whole)
    train(two, 2)


def test_laplace_uploads_at_a_delta_leave_what_their_losses_say(tmp_path):
    options: Any = {"total_epsilon": 2.0, "delta": 1e-5}
    one = client(tmp_path / "0", uploads=40, **options)
    train(one, 2)
    two = client(tmp_path / "1", uploads=20, after=tmp_path / "0", **options)
    z = two._rows.multiplier
    both = one.account + Account().add("laplace", z, 20)
    assert 2.0 * 0.99 < both.epsilon(1e-5, method="pld") <= 2.0 < both.pure
    assert two.spent.total <= 2.0 and two.spent.epsilon < one.spent.total


def test_noise_of_each_round_goes_on_as_it_was_asked_for(tmp_path):
    each: Any = {"total_epsilon": None, "epsilon_per_round": 0.25}
    one = client(tmp_path / "0", **each)
    train(one, 3)
    two = client(tmp_path / "1", uploads=2, after=tmp_path / "0", **each)
    assert two.spent.epsilon == pytest.approx(0.75, rel=1e-12)
    assert two.spent.total == pytest.approx(1.25, rel=1e-12)


def test_one_of_many_that_ask_at_once_gets_the_budget(tmp_path):
    one = client(tmp_path / "0")
    train(one, 3)
    children = []
    for name in "12345":
        if (child := os.fork()) == 0:
            try:
                client(tmp_path / name, after=tmp_path / "0")
            except ValueError as error:
                os._exit(7 if "whose budget is free" in str(error) else 8)
            finally:
                os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 7, 7, 7, 7]
    assert [(tmp_path / name).exists() for name in "12345"] == [code == 0 for code in codes]


def test_a_kill_at_any_call_of_the_system_doubles_no_budget(tmp_path):
    one = client(tmp_path / "first")
    train(one, 2)
    seen, killed, calls = set(), True, 0
    while killed:
        calls += 1
        old, new = tmp_path / f"{calls}", tmp_path / f"{calls}-next"
        for end in ("", ".lock"):
            shutil.copy(tmp_path / f"first{end}", tmp_path / f"{calls}{end}")
        child = os.fork()
        if child == 0:  # whatever happens, it does not return
            try:
                dying(calls)
                client(new, uploads=1, after=old)
            finally:
                os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
        # Never both: where the new one is there, the old one spends nothing any more.
        closed, there = bool(Ledger(old, {}).read().closed), new.exists()
        seen.add((closed, there))
        assert closed or not there
        # Asked for the same again it goes on, with the whole of what was left.
        two = client(new, uploads=1, after=old)
        two.train(np.zeros(N), 0)
        assert 1.0 - 1e-9 < two.account.epsilon() <= 1.0
        with pytest.raises(UploadRefused, match="its ledger is closed"):
            client(old).train(np.zeros(N), 2)
        assert ledger_account(old) == one.account
        assert not [*tmp_path.glob(".*")]
    assert seen == {(False, False), (True, False), (True, True)} and calls > 10
