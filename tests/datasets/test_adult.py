"""The packaged Adult table is the authors' matrix, and rebuilds from the raw files."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat

from fedepm_fast import datasets

ROOT = Path(__file__).parents[2]
#: The folder of the raw files and the authors' matrices: asked for by name, never looked for.
RAW = Path(os.environ["FEDEPM_RAW_DATA"]) if "FEDEPM_RAW_DATA" in os.environ else None


def test_content():
    table = datasets.load_adult(scaled=False)
    assert table.features.shape == (45222, 14)
    digest = hashlib.sha256(
        table.features.astype("<f8").tobytes() + table.labels.astype("<f8").tobytes()
    )
    # Of the authors' own matrix and labels, see below.
    assert digest.hexdigest() == "9d5f67b67766d3e4e2f2b1f743617391037d584a185b207be04fdaefd09e349a"
    assert table.feature_names[0] == "age" and table.feature_names[-1] == "native-country"
    assert table.categories["sex"] == ["Female", "Male"]
    assert table.labels.mean() == pytest.approx(0.24784, abs=1e-5)


def test_scaling():
    raw, scaled = datasets.load_adult(scaled=False), datasets.load_adult()
    np.testing.assert_array_equal(
        scaled.features, raw.features / np.linalg.norm(raw.features, axis=0)
    )


@pytest.mark.parametrize("authors", [RAW] if RAW else [])
def test_equals_the_authors_matrix(authors):
    table = datasets.load_adult(scaled=False)
    np.testing.assert_array_equal(table.features, loadmat(authors / "adult_check.mat")["X"])
    labels = loadmat(authors / "adult_check_labels.mat")["y"]
    np.testing.assert_array_equal(table.labels, labels.ravel())


def raw(folder: Path, name: str) -> bytes:
    packed = folder / f"{name}.gz"
    if packed.exists():
        return gzip.decompress(packed.read_bytes())
    return (folder / name).read_bytes()


def build(folder: Path, target: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts" / "build_adult.py"
    command = [sys.executable, str(script), str(folder), "--output", str(target)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(("source", "packed"), [(RAW, False), (RAW, True)] if RAW else [])
def test_rebuilds_from_the_raw_files(tmp_path, source, packed):
    for name in ("adult.data", "adult.test"):
        content = raw(source, name)
        (tmp_path / f"{name}.gz" if packed else tmp_path / name).write_bytes(
            gzip.compress(content) if packed else content
        )
    done = build(tmp_path, tmp_path / "built.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "built.npz") as built, np.load(datasets.ADULT) as shipped:
        assert built.files == shipped.files
        for name in built.files:
            assert built[name].dtype == shipped[name].dtype
            np.testing.assert_array_equal(built[name], shipped[name])


def test_building_says_what_is_missing(tmp_path):
    done = build(tmp_path, tmp_path / "built.npz")
    assert done.returncode == 1 and "adult.test" in done.stderr and "Traceback" not in done.stderr
    (tmp_path / "adult.test").write_text("|comment\n\n25, Private, 1\n")
    done = build(tmp_path, tmp_path / "built.npz")
    assert done.returncode == 1 and "line 3 is not a row of Adult" in done.stderr
    assert not (tmp_path / "built.npz").exists()


HOME = importlib.import_module("fedepm_fast.datasets.adult")


@pytest.mark.parametrize("at", [100, 50_000, 150_000, 250_000, 330_000])
def test_damage_within_the_file_is_noticed(tmp_path, monkeypatch, at):
    content = bytearray(datasets.ADULT.read_bytes())
    content[at] ^= 0xFF
    (tmp_path / "adult.npz").write_bytes(bytes(content))
    monkeypatch.setattr(HOME, "ADULT", tmp_path / "adult.npz")
    with pytest.raises(ValueError, match=r"adult\.npz is damaged"):
        datasets.load_adult()


def test_ready_split():
    data = datasets.adult(clients=100, seed=0)
    assert (data.n_clients, data.n_samples) == (100, 45222)
    assert data.description["source"] == "Adult"
    assert data.description["partition"] == {"name": "random", "clients": 100, "min_share": 0.01}
    np.testing.assert_allclose(np.linalg.norm(data.features, axis=0), 1)
    assert datasets.adult(100, 0).content_hash() == data.content_hash()
    with pytest.raises(ValueError, match="clients must be"):
        datasets.adult(clients=0)
    with pytest.raises(ValueError, match="clients must not exceed the number of rows"):
        datasets.adult(clients=50_000)


def test_a_missing_or_damaged_file_is_named(tmp_path, monkeypatch):
    damaged = tmp_path / "adult.npz"
    monkeypatch.setattr(HOME, "ADULT", damaged)
    with pytest.raises(FileNotFoundError, match=r"the packaged data are missing: .*adult\.npz"):
        datasets.load_adult()
    damaged.write_bytes((ROOT / "fedepm_fast" / "datasets" / "adult.npz").read_bytes()[:200_000])
    with pytest.raises(ValueError, match=r"adult\.npz is damaged"):
        datasets.load_adult()
