"""Build fedepm_fast/datasets/adult.npz from the raw files of the UCI repository.

    python scripts/build_adult.py FOLDER

FOLDER holds ``adult.data`` and ``adult.test``, plain or gzipped, as the UCI Machine Learning
Repository offers them (Becker and Kohavi 1996, doi 10.24432/C5XW20, CC BY 4.0).

The table is the one of the paper: the rows of adult.test, then those of adult.data, without
rows that have a missing value; the eight categorical attributes become the index of their value
in alphabetical order; the label is 1 for an income above 50K.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country",
)  # fmt: skip
CATEGORICAL = (
    "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex",
    "native-country",
)  # fmt: skip
ROWS = 45_222
TARGET = Path(__file__).parents[1] / "fedepm_fast" / "datasets" / "adult.npz"


def read_rows(path: Path) -> list[list[str]]:
    """The complete rows of a raw file, plain or gzipped."""
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if not path.exists():
        raise SystemExit(f"no {path.with_suffix('')} and no {path}")
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("ascii")
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        # The test file begins with a comment, and ends its rows with a full stop.
        if not line.strip() or line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().rstrip(".").split(",")]
        if len(cells) != len(COLUMNS) + 1 or cells[-1] not in ("<=50K", ">50K"):
            raise SystemExit(f"{path}, line {number} is not a row of Adult: {line!r}")
        if "?" not in cells:
            rows.append(cells)
    return rows


def encode(
    rows: list[list[str]],
) -> tuple[list[NDArray[np.int64]], NDArray[np.uint8], dict[str, list[str]]]:
    """Integer columns, labels, and the names of the categories."""
    cells = list(zip(*rows, strict=True))
    columns, categories = [], {}
    for name, values in zip(COLUMNS, cells[:-1], strict=True):
        if name in CATEGORICAL:
            categories[name] = sorted(set(values))
            index = {value: i for i, value in enumerate(categories[name])}
            columns.append(np.array([index[value] for value in values]))
        else:
            columns.append(np.array([int(value) for value in values]))
    return columns, np.array([label == ">50K" for label in cells[-1]], dtype=np.uint8), categories


def write(path: Path, arrays: dict[str, NDArray]) -> None:
    """A compressed .npz whose bytes depend on its content only, not on the clock."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, buffer.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the packaged Adult table.")
    parser.add_argument("folder", type=Path, help="holds adult.data and adult.test, or .gz")
    parser.add_argument("--output", type=Path, default=TARGET)
    arguments = parser.parse_args()

    rows = read_rows(arguments.folder / "adult.test") + read_rows(arguments.folder / "adult.data")
    if len(rows) != ROWS:
        raise SystemExit(f"{arguments.folder} must have {ROWS} complete rows, got {len(rows)}")
    columns, labels, categories = encode(rows)
    arrays: dict[str, NDArray] = {
        name: column.astype(np.min_scalar_type(column.max()))
        for name, column in zip(COLUMNS, columns, strict=True)
    }
    arrays["label"] = np.packbits(labels)
    arrays["categories"] = np.array(json.dumps(categories))
    write(arguments.output, arrays)
    print(f"{arguments.output.name}: {len(rows)} rows, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
