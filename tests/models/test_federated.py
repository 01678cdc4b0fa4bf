"""A fit of tables that stay where they are: the coefficients of `fit`, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hospitals import LABELS, columns_for, hospitals, rows_of

from fedepm_fast import CurvatureFedEPM, Model
from fedepm_fast.models import FederatedFit, fit
from fedepm_fast.preparation import DisclosureError, Preparation

TABLE = hospitals(1200, missing=0.15)
NAMES = sorted(map(str, set(TABLE["hospital"])))
CLASSES = {"logistic": ("alive", "died"), "multinomial": ("a", "b", "c")}


def sent(message: Any) -> Any:
    """As it arrives."""
    return json.loads(json.dumps(message, allow_nan=False))


def sites(plan: FederatedFit, table: Any, **options: Any) -> list[Any]:
    found = []
    for name in NAMES:
        own = rows_of(table, table["hospital"] == name)
        del own["hospital"]
        found.append(plan.site(own, name, **options))
    return found


def federated(plan: FederatedFit, clients: list[Any], **options: Any) -> Model:
    """All that happens, each message through JSON."""
    terms = sent(plan.learn([sent(site.summary()) for site in clients]))
    terms = sent(plan.settle(terms, [sent(site.moments(terms)) for site in clients]))
    answering = [site.client(terms) for site in clients]
    answer_type = type(answering[0].join(np.zeros(answering[0].features)))
    server = plan.server(terms, **options)

    def arrived(answer: Any) -> Any:
        return answer_type.from_dict(sent(answer.to_dict()))

    for client in answering:
        assert server.join(0, client.index, arrived(client.join(server.x)))
    while not server.converged:
        tau, x, selected, due = server.open_round()
        for i in selected.tolist():
            answer = answering[i].answer(np.array(sent(x.tolist())), due=i in due)
            assert server.receive(tau, i, arrived(answer))
        server.close_round()
    x = np.array(sent(server.x.tolist()))
    sums = [sent(site.sums(terms, x)) for site in clients]
    return plan.model(terms, server, sums, client="hospital")


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("logistic", {}),
        ("logistic", {"client_weight": "equal", "beta": 0.1}),
        ("logistic", {"participation": 0.5}),
        ("multinomial", {}),
        ("least_squares", {"beta": 0.01}),
        ("huber", {}),
        ("poisson", {}),
    ],
)
def test_a_federation_has_the_model_of_one_table(loss, options):
    table = columns_for(TABLE, loss)
    expected = fit(table, LABELS[loss], "hospital", objective=loss, seed=3, **options)
    own = {name: value for name, value in options.items() if name != "participation"}
    algorithm = CurvatureFedEPM(
        participation=options.get("participation", 1.0), tol=expected.training["tol"]
    )
    plan = FederatedFit(
        LABELS[loss], objective=loss, classes=CLASSES.get(loss), algorithm=algorithm, **own
    )
    found = federated(plan, sites(plan, table), seed=3)
    np.testing.assert_array_equal(found.w, expected.w)
    assert found.prepared == expected.prepared
    assert (found.classes, found.label, found.client) == (
        expected.classes, expected.label, expected.client,
    )  # fmt: skip
    assert found.training["converged"]
    assert found.training["rounds"] == expected.training["rounds"]
    assert found.training["sent"]["preparation"] == expected.training["sent"]["preparation"]
    assert found.training["gradient_norm"] < 1e-6
    for name in ("deviance", "null_deviance", "log_likelihood", "aic", "dispersion"):
        a, b = getattr(found.inference, name), getattr(expected.inference, name)
        assert a == b or a == pytest.approx(b, rel=1e-12)
    assert found.inference.covariances.keys() == expected.inference.covariances.keys()
    for kind, covariance in expected.inference.covariances.items():
        np.testing.assert_allclose(found.inference.covariances[kind], covariance, rtol=1e-9)
    np.testing.assert_array_equal(found.predict(table), expected.predict(table))
    assert [(c["name"], c["rows"]) for c in found.clients] == [
        (c["name"], c["rows"]) for c in expected.clients
    ]


def test_weights_and_missing_labels_are_those_of_one_table():
    table = columns_for(TABLE, "logistic")
    rng = np.random.default_rng(0)
    outcome = np.where(rng.random(len(table["outcome"])) < 0.1, None, table["outcome"])
    table |= {"outcome": outcome, "weight": rng.uniform(0.5, 2, len(outcome))}
    expected = fit(table, "outcome", "hospital", sample_weight="weight")
    algorithm = CurvatureFedEPM(tol=expected.training["tol"])
    plan = FederatedFit("outcome", classes=("alive", "died"), algorithm=algorithm)
    found = federated(plan, sites(plan, table, sample_weight="weight"))
    np.testing.assert_array_equal(found.w, expected.w)
    assert found.training["weighted"]
    assert sum(c["rows"] for c in found.clients) == sum(x is not None for x in outcome)


def test_columns_that_are_sums_of_others_are_left_out():
    table = columns_for(TABLE, "logistic")
    table |= {"doses": 2 * table["dose"]}
    expected = fit(table, "outcome", "hospital")
    algorithm = CurvatureFedEPM(tol=expected.training["tol"])
    plan = FederatedFit("outcome", classes=("alive", "died"), algorithm=algorithm)
    found = federated(plan, sites(plan, table))
    assert found.prepared.aliased == expected.prepared.aliased != ()
    np.testing.assert_array_equal(found.w, expected.w)


def test_a_site_says_nothing_of_few_rows():
    plan = FederatedFit("outcome", classes=("alive", "died"))
    table = rows_of(columns_for(TABLE, "logistic"), slice(0, 2))
    del table["hospital"]
    with pytest.raises(DisclosureError, match="north"):
        plan.site(table, "north").summary()
    assert plan.site(table, "north").summary(guard=False)["name"] == "north"


TERMS = {"format": "fedepm_fast terms of a fit", "version": 1, "names": ["a"]}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FederatedFit("y"), "classes must be given, the values of the label in order"),
        (lambda: FederatedFit("y", classes=("a",)), "classes must be two different values"),
        (lambda: FederatedFit("y", classes=("a", "a")), "classes must be two different values"),
        (lambda: FederatedFit("y", objective="huber", classes=(0, 1)), "classes must be None for"),
        (lambda: FederatedFit("y", classes=(0, 1), client_weight="rows"), "client_weight must be"),
        (lambda: FederatedFit("y", classes=(0, 1), beta=-1.0), "beta must be a finite number in"),
        (lambda: FederatedFit("y", classes=(0, 1)).learn([{}]), "must have the format"),
        (lambda: FederatedFit("y", classes=(0, 1)).settle({}, []), "must have the format"),
        (lambda: FederatedFit("y", classes=(0, 1)).learn([]), "summaries must be those of"),
    ],
)
def test_arguments_are_checked(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_sites_have_names_of_their_own():
    plan = FederatedFit(
        "outcome", classes=("alive", "died"), preparation=Preparation(missing="fill")
    )
    first, second = sites(plan, columns_for(TABLE, "logistic"))[:2]
    with pytest.raises(ValueError, match="summaries must have different names"):
        plan.learn([first.summary(), first.summary()])
    terms = plan.learn([first.summary()])
    with pytest.raises(ValueError, match=r"terms must be of 'h2' too, got those of \['h1'\]"):
        second.client(terms)
