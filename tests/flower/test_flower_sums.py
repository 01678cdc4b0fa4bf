"""Secure sums through Flower's own secure aggregation, SecAgg+."""

from __future__ import annotations

import copy

import flower_grid
import flwr.compat.common.recorddict_compat as compat
import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import FitIns, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

from fedepm_fast.privacy.secure_sum import secure_sum

M, BITS = 5, 28
#: Five of 28 bits stay within the 32 of Flower's modulus, and two clients may be missing.
SUMS = secure_sum(4.0, 10.0, 1600.0, 6, clients=3, honest=0.8, bits=BITS)
VALUES = np.random.default_rng(0).normal(size=(M, 6)) * 20


class Grid(flower_grid.InProcessGrid):
    """Messages are copies: what a client takes out of one is there for the next."""

    def send_and_receive(self, messages, *, timeout=None):
        return super().send_and_receive(map(copy.deepcopy, messages), timeout=timeout)


class Node:
    def __init__(self, node_id):
        self.node_id = node_id


@pytest.mark.parametrize("gone", [[], [1, 3]])
def test_a_sum_through_secagg_is_that_of_the_integers(gone):
    sent, seen = {}, {}

    class Holder(NumPyClient):
        def __init__(self, i):
            self.i = i

        def fit(self, parameters, config):
            if self.i in gone:
                raise RuntimeError("no answer")
            sent[self.i] = SUMS.release_part(VALUES[self.i])
            return [SUMS.decode(sent[self.i])], 1, {}

    class Sums(FedAvg):
        def configure_fit(self, server_round, parameters, client_manager):
            return [(Node(n), FitIns(parameters, {})) for n in grid.get_node_ids()]

        def aggregate_fit(self, server_round, results, failures):
            parameters = results[0][1].parameters  # the same in all: that of the sum
            (mean,) = parameters_to_ndarrays(parameters)
            seen["total"], seen["clients"] = mean * len(results) / SUMS.grid, len(results)
            return parameters, {}

    def make(context):
        return Holder(int(context.node_config["partition-id"])).to_client()

    grid = Grid(ClientApp(client_fn=make, mods=[secaggplus_mod]), M)
    context = LegacyContext(
        Context(1, 0, {}, RecordDict(), {}), ServerConfig(1), Sums(), SimpleClientManager()
    )
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([np.zeros(6)]), True
    )
    workflow = SecAggPlusWorkflow(
        1.0, 0.5, max_weight=1, clipping_range=SUMS.grid * 2 ** (BITS - 1),
        quantization_range=2**BITS,
    )  # fmt: skip
    workflow(grid, context)
    assert seen["clients"] == len(sent) == M - len(gone)
    whole = np.rint(seen["total"]).astype(np.int64)
    assert np.abs(seen["total"] - whole).max() < 1e-6
    np.testing.assert_array_equal(SUMS.decode(whole), SUMS.decode(sum(sent.values())))
    off = SUMS.decode(whole) - VALUES[sorted(sent)].sum(axis=0)
    assert np.abs(off).max() < 9 * SUMS.noise(M)
