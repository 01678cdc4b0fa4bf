"""Tables that nobody prepared: a right answer, or an error that names the argument."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fedepm_fast import fit


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_rows_of_weight_zero_are_no_rows(loss):
    draw = np.random.default_rng(5)
    x = draw.normal(size=90)
    y = x + draw.normal(size=90) if loss == "least_squares" else (draw.random(90) < 0.4) * 1.0
    weights = draw.integers(0, 3, 90).astype(float)
    table = {"x": x, "y": y, "w": weights, "clinic": [*"abc"] * 30}
    rows = {name: np.asarray(column)[weights > 0] for name, column in table.items()}
    options = {"objective": loss, "sample_weight": "w"}
    ours, theirs = (fit(t, "y", "clinic", **options) for t in (table, rows))
    assert ours.coefficients == theirs.coefficients
    for kind in ("wald", "robust", "clustered"):
        np.testing.assert_array_equal(ours.covariance(kind), theirs.covariance(kind))
    lost = [int((weights[k::3] == 0).sum()) for k in range(3)]
    assert [client["left_out"] for client in ours.clients] == lost


def test_a_class_without_weight_is_refused():
    table = {"x": [0.0, 1.0, 2.0, 3.0], "y": [0, 1, 1, 0], "w": [0, 1, 1, 0]}
    with pytest.raises(ValueError, match="sample_weight must not be 0 for all rows of a class"):
        fit(table, "y", sample_weight="w")


def test_a_folder_is_no_table(tmp_path):
    with pytest.raises(ValueError, match="must be the file of a table, but it is a folder"):
        fit(tmp_path, "y")


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e150, 1e300])
def test_labels_that_cannot_be_squared_are_refused(size):
    table = {"x": np.arange(40.0) ** 2, "y": np.sin(np.arange(40)) * size}
    with pytest.raises(ValueError, match="label 'y' must be brought to scale"):
        fit(table, "y", task="regression")


def test_a_pipe_is_not_replaced_by_a_model(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes with names here")
    path = tmp_path / "model.json"
    os.mkfifo(path)
    model = fit({"x": [0.0, 1.0, 2.0, 3.0], "y": [0, 1, 0, 1]}, "y")
    with pytest.raises(OSError, match="is a device or a pipe, not a file to write to"):
        model.save(path)
    assert not path.is_file()


@pytest.mark.parametrize("first", ["0", "1", "1.0"])
@pytest.mark.parametrize("classes", [("0", "1"), ("-1", "2.5"), ("10", "9", "100")])
def test_classes_that_are_numbers_are_in_their_order_whatever_row_is_first(
    tmp_path, first, classes
):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, len(classes), 90)
    codes[0] = min(int(float(first)), len(classes) - 1)
    written = sorted(classes, key=float)
    rows = [f"{rng.normal() + k:.3f},{written[k]}" for k in codes.tolist()]
    if first == "1.0" and written[1] == "1":
        rows[0] += ".0"  # the same number
    path = tmp_path / "table.csv"
    path.write_text("x,y\n" + "\n".join(rows) + "\n")
    task = "multiclass" if len(classes) > 2 else None
    model = fit(path, label="y", task=task)
    assert list(model.classes) == sorted(map(float, classes))
    x = np.array([float(row.split(",")[0]) for row in rows])
    y = np.array([float(row.split(",")[1]) for row in rows])
    again = fit({"x": x, "y": y}, label="y", task=task)
    assert again.classes == model.classes
    np.testing.assert_allclose(
        again.predict_proba({"x": x}), model.predict_proba({"x": x}), rtol=1e-9, atol=1e-12
    )
