"""Damage: no flipped bit is read as another table, and what is lost is told."""

from __future__ import annotations

import math
import sqlite3

import numpy as np
import pytest
from records import record

from fedepm_fast import Store, StoreError
from fedepm_fast.store import _history
from fedepm_fast.store._rows import checksum

CHECKSUM = 180513624


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_store_is_told(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    for readonly in (True, False):
        with pytest.raises(StoreError, match=r"is damaged|is not a store"):
            Store(path, readonly=readonly)


def test_damage_inside_is_told(path):
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with Store(path, readonly=True) as store:
        for read in (store.ids, store.table, store.to_pandas, lambda: len(store)):
            with pytest.raises(StoreError, match="is damaged"):
                read()
        with pytest.raises(StoreError, match="is damaged"):
            store.get("0")


def test_a_damaged_history_is_told(path):
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET history = x'0001' WHERE trial = 3")
    connection.execute("UPDATE cells SET parameters = '{' WHERE cell = 1")
    connection.commit()
    connection.close()
    with Store(path, readonly=True) as store:
        with pytest.raises(StoreError, match=r"is damaged: run 0+3: the history is damaged"):
            store.histories([f"{3:064x}"])
        with pytest.raises(StoreError, match="is damaged"):
            store.table()


def test_any_damage_of_a_history_is_told(rng):
    history = {"objective": rng.normal(size=30), "x": rng.normal(size=(30, 2))}
    content = _history.encode(history)
    told = 0
    for k in range(300):
        damaged = bytearray(content)
        if k % 3:
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(content)) :]
        try:
            found = _history.decode(bytes(damaged))  # a bit of the last byte may mean nothing
            assert {n: v.tobytes() for n, v in found.items()} == {
                n: v.tobytes() for n, v in history.items()
            }
        except ValueError as error:
            told += 1
            assert str(error).startswith("the history is damaged: ")
    assert told > 290


def _read(path, readonly=True):
    """All that a store can be asked, in words."""
    with Store(path, readonly=readonly) as store:
        ids = store.ids()
        histories = store.histories(ids)
        return repr((
            ids, len(store), store.table(), store.table(["trial>=2", "local_steps=4,8"]),
            store.table(ids=ids[::-1]), store.get(ids[3]), store.done(ids),
            {i: {n: v.tolist() for n, v in h.items()} for i, h in histories.items()},
        ))  # fmt: skip


@pytest.mark.parametrize("machine", ["here", "a-name" * 300])  # in one page, in several
def test_no_flipped_bit_is_read_as_another_table(tmp_path, rng, machine):
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        for i in range(1, 25):
            one = record(i, local_steps=4 * (1 + i % 2), error=None if i % 5 else "ValueError: no")
            object.__setattr__(one, "machine", machine)
            store.add([one])
    content, want = path.read_bytes(), _read(path)
    told = 0
    for k in range(500):
        damaged = bytearray(content)
        if k % 10:
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(content)) :]
        path.write_bytes(damaged)
        try:
            assert _read(path, readonly=bool(k % 5)) == want
        except (StoreError, KeyError) as error:  # of an index that says there is none
            told += 1
            assert str(path) in str(error) and "\n" not in str(error)
        finally:
            for log in path.parent.glob("*-*"):
                log.unlink()
    assert told > 100


def test_what_is_changed_in_a_row_is_told_with_its_run(path):
    values = {
        "mean_objective": "0.8815", "rounds": "rounds + 1", "error": "'no'", "seed": "1",
        "machine": "'there'", "history": "x'00'", "guarantee": "'none '", "cell": "3 - cell",
        "history_checksum": "7", "checksum": "7", "diverged": "NULL",
    }  # fmt: skip
    content = path.read_bytes()
    for name, value in values.items():
        path.write_bytes(content)
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE runs SET {name} = {value} WHERE trial = 7")
        connection.close()
        with Store(path) as store:
            with pytest.raises(StoreError, match=rf"{path} is damaged: run {7:064x}"):
                store.histories([f"{7:064x}"])
            if name != "history":  # which the others do not read
                for read in (store.table, store.ids, lambda s=store: s.done([f"{7:064x}"])):
                    with pytest.raises(StoreError, match=rf"{path} is damaged: run {7:064x}"):
                        read()
            assert store.histories([f"{8:064x}"])
            assert store.prune(ids=[f"{7:064x}"]) == 1  # it can be done again
            assert len(store.histories(store.ids())) == 99
    path.write_bytes(content)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET parameters = replace(parameters, '8', '9')")
    connection.close()
    with (
        Store(path, readonly=True) as store,
        pytest.raises(StoreError, match="the parameters of cell 1 is not what was written"),
    ):
        store.table()


def test_a_run_that_is_lost_is_told(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER run_deleted")
        connection.execute("DELETE FROM runs WHERE trial = 7")
    connection.close()
    with Store(path, readonly=True) as store:
        for read in (store.table, store.ids, lambda: len(store)):
            with pytest.raises(StoreError, match="is damaged: runs are missing, or there twice"):
                read()


def test_a_checksum_is_of_values_and_types():
    # Written in files: these must not change.
    assert checksum(("a", 7, 0.3, None)) == CHECKSUM
    others = [("a", 7.0, 0.3, None), ("a", 7, 0.3, "None"), ("b", 7, 0.3, None), ("a", -7, 0.3, 0)]
    assert CHECKSUM not in map(checksum, others)
    assert checksum(("a", "b")) != checksum(("ab", ""))
    with pytest.raises(OverflowError):
        checksum((2**63,))
    with pytest.raises(ValueError, match="of type bytes"):
        checksum((b"a",))


@pytest.mark.parametrize("value", [-0.0, math.nan, math.inf, 7, np.float64(0.1), True])
def test_what_sqlite_makes_of_a_number_is_what_is_checked(value):
    with Store(":memory:") as store:
        one = record(1)
        object.__setattr__(one, "measures", {**one.measures, "snr": value, "diverged": np.True_})
        store.add([one])
        (found,) = store.table()["snr"]
        assert found == value or (found is None and math.isnan(value))
        assert store.table()["diverged"] == [True]
