"""Makes the tables of the tutorial, ``docs/hospitals/2023.csv`` and ``2024.csv``.

No patient is in them: every cell is drawn here. They have what real exports have: semicolons and
decimal commas, several marks of a missing cell, levels in any case with blanks around them, a
number and a date of each patient, a constant column, a ward that one hospital alone has, a small
hospital, a rare outcome.

Usage: ``python scripts/make_hospitals.py``, or with a folder to write to.
"""

from __future__ import annotations

import math
import random
import sys
from datetime import date, timedelta
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "hospitals"

#: Rows of a year by hospital, how likely it does not measure creatinine, and what it is like.
HOSPITALS = {
    2023: {
        "0045": (900, 0.04, 0.0),
        "0102": (640, 0.35, 0.3),
        "0117": (480, 0.06, -0.2),
        "0230": (330, 0.05, 0.2),
        "0308": (220, 0.08, -0.3),
        "0411": (30, 0.05, 0.0),
    },
    2024: {
        "0045": (310, 0.04, 0.0),
        "0102": (220, 0.30, 0.3),
        "0117": (160, 0.06, -0.2),
        "0230": (110, 0.05, 0.2),
        "0308": (80, 0.08, -0.3),
        "0512": (120, 0.10, 0.1),
    },
}
WARDS = {"medical": (0.6, 0.0), "surgical": (0.3, -0.3), "cardiac": (0.1, 0.7)}
COLUMNS = "patient;hospital;admitted;age;sex;ward;creatinine;pressure;emergency;country;outcome"


def normal(draw: random.Random) -> float:
    """Of the Box-Muller transform: the same for all versions of Python."""
    return math.sqrt(-2 * math.log(1 - draw.random())) * math.cos(2 * math.pi * draw.random())


def one_of(draw: random.Random, shares: dict[str, float]) -> str:
    """A key, as likely as its share."""
    left = draw.random() * sum(shares.values())
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    return name


def comma(number: float, digits: int) -> str:
    return f"{number:.{digits}f}".replace(".", ",")


def row(draw: random.Random, year: int, hospital: str, patient: int) -> str:
    _, unmeasured, differs = HOSPITALS[year][hospital]
    wards = {name: share for name, (share, _) in WARDS.items()}
    risks = {name: risk for name, (_, risk) in WARDS.items()}
    if hospital == "0045":
        wards["burns"], risks["burns"] = 0.05, 1.0
    if hospital == "0512":
        wards["stroke"], risks["stroke"] = 0.1, 0.8
    ward = one_of(draw, wards)
    age = min(max(64 + 14 * normal(draw), 18), 99)
    male = draw.random() < 0.52
    creatinine = math.exp(4.4 + 0.25 * normal(draw))
    pressure = 130 + 20 * normal(draw)
    emergency = draw.random() < 0.55
    margin = (
        -4.1 + 0.055 * (age - 64) + 0.3 * male + 0.012 * (creatinine - 84)
        - 0.015 * (pressure - 130) + 0.8 * emergency + risks[ward] + differs
    )  # fmt: skip
    died = draw.random() < 1 / (1 + math.exp(-margin))
    admitted = date(year, 1, 1) + timedelta(days=int(draw.random() * 365))
    sex = "m" if male else "f"
    if hospital == "0230":  # types it by hand
        sex = one_of(draw, {sex: 0.6, sex.upper(): 0.3, f" {sex}": 0.1})
        ward = one_of(draw, {ward: 0.8, f"{ward} ": 0.2})
    measured = comma(creatinine, 1)
    if draw.random() < unmeasured:
        measured = one_of(draw, {"n. d.": 0.7, "": 0.3})
    told = comma(pressure, 0) if draw.random() > 0.03 else "-99"
    how = "yes" if emergency else "no"
    ended = "" if draw.random() < 0.008 else "died" if died else "alive"
    return ";".join([
        str(patient), hospital, admitted.isoformat(), comma(age, 0), sex, ward, measured, told, how,
        "CH", ended,
    ])  # fmt: skip


def table(year: int) -> str:
    """A year's table as text, in the order in which patients came."""
    draw = random.Random(year)
    who = [name for name, (rows, *_) in HOSPITALS[year].items() for _ in range(rows)]
    draw.shuffle(who)
    first = 100_000 * (year - 2000) + 1
    rows = [row(draw, year, name, first + k) for k, name in enumerate(who)]
    return "\n".join([COLUMNS, *rows, ""])


def main(folder: Path) -> None:
    """Write the tables into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for year in HOSPITALS:
        (folder / f"{year}.csv").write_text(table(year), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
