"""What workers say of themselves when they come together anew, from one of another version or with damaged memory."""

import json
import types

import isochron
from chances import random_json, scribbled
from isochron.torch.optimizer_steps import OptimizerSteps
from isochron.torch.peers import Peer
from isochron.torch.recovery import Recovery
from test_served import options_of, replica_of

PEERS = [Peer(rank, "here", 1, "this") for rank in range(2)]


class World:
    """Of rank 0, who reads what the other one is made to say."""

    def __init__(self, said):
        self.members, self.rank, self.elastic, self._said = list(PEERS), 0, True, said

    def re_form(self, stand, settle, suspects):
        statements = {0: json.loads(json.dumps(stand())), 1: self._said}
        settle(statements, [])
        return statements, []

    def broadcast_state(self, mine, source):
        """Of the other one, who says that it has taken more steps of optimizers."""
        return {}, [], b""

    @property
    def size(self):
        return len(self.members)


def recovery_of(rank, said=None):
    models = types.SimpleNamespace(between=[])
    prepared = types.SimpleNamespace(models=models, pack=dict, unpack=lambda packed: None)
    return Recovery(World(said), replica_of(2, options_of(), rank), prepared, OptimizerSteps(models), lambda: 1.0, None,
                    None, lambda events: None)  # fmt: skip


def test_a_statement_that_cannot_be_read_is_an_error_that_names_its_worker(chance):
    true = recovery_of(1)
    true.bad_sample = isochron.errors.SampleError("no sample at 7", 7, (0, 1))
    for bad in (None, true.bad_sample):
        true.bad_sample = bad
        statement = json.loads(json.dumps(true._statement()))
        assert [one.sample for one in recovery_of(0, statement).come_together(())] == ([7] if bad else [])
        unreadable = 0
        for _ in range(200):
            said = scribbled(chance, statement) if chance.random() < 0.8 else random_json(chance)
            try:
                recovery_of(0, json.loads(json.dumps(said))).come_together(())
            except isochron.Error as error:
                assert str(error).startswith("rank 1 on here (process 1) said where it stands in words that"), said
                unreadable += 1
        assert unreadable > 100
