"""A table of hospitals, as tests of models use it."""

from __future__ import annotations

import numpy as np

SEXES = np.array(["f", "m"])


def hospitals(rows=600, clients=5, seed=0, *, missing=0.05):
    """Columns age (missing in some rows), sex and dose, the outcome, and who treated a patient.

    Hospitals are of different size and have different patients.
    """
    rng = np.random.default_rng(seed)
    names = np.array([f"h{i + 1}" for i in range(clients)])
    shares = np.arange(clients, 0, -1) / (clients * (clients + 1) / 2)
    who = rng.choice(clients, rows, p=shares)
    age = rng.normal(60, 10, rows) + 2 * who
    male = rng.random(rows) < 0.4
    dose = rng.gamma(2, 1, rows)
    margin = 0.05 * (age - 62) + 0.8 * male - 0.4 * dose + 0.2 * who - 0.3
    died = rng.random(rows) < 1 / (1 + np.exp(-margin))
    return {
        "age": np.where(rng.random(rows) < missing, np.nan, age),
        "sex": SEXES[male.astype(int)],
        "dose": dose,
        "outcome": np.where(died, "died", "alive"),
        "stay": 5 + margin + rng.normal(size=rows),
        "visits": rng.poisson(np.exp(0.3 * margin)).astype(float),
        "unit": np.array(["a", "b", "c"])[
            np.argmax(margin[:, None] * [0, 0.5, 1] + rng.gumbel(size=(rows, 3)), axis=1)
        ],
        "hospital": names[who],
    }


#: Labels of that table by the loss that they suit.
LABELS = {
    "logistic": "outcome",
    "multinomial": "unit",
    "least_squares": "stay",
    "huber": "stay",
    "poisson": "visits",
    "squared_hinge": "outcome",
}


def columns_for(table, loss):
    """The features, the label and the hospital, without the other labels."""
    names = ("age", "sex", "dose", LABELS[loss], "hospital")
    return {name: table[name] for name in names}


def rows_of(table, chosen):
    """Some rows of such a table."""
    return {name: column[chosen] for name, column in table.items()}
