"""What the ranks of test_torch_words.py do; torch_cases.py hands these on."""

import pickle

import torch
import torch.distributed as dist

import isochron.torch as isochron
from isochron.torch import words
from test_torch_words import Trap


def sends_a_pickle(exchange, path):
    """Rank 1, once."""
    job = isochron.Job(global_batch=4, timeout=60.0)
    world, pack = job._world, "pack_words" if exchange.endswith("words") else "pack_state"
    exchanged = getattr(world, exchange)
    source = () if exchange.startswith("gather") else (1,)
    sound = exchanged(["one", 1], *source)
    true = getattr(words, pack)
    if dist.get_rank() == 1:
        setattr(words, pack, lambda value: pickle.dumps(Trap(path)))
    try:
        exchanged(["one", 1], *source)
    except isochron.Error as error:
        return {"words": str(error), "sound": sound}
    finally:
        setattr(words, pack, true)
        job.close()
    return {"words": "nothing", "sound": sound}


class Memory(torch.optim.SGD):
    """Remembers an object of a class of its own."""

    def state_dict(self):
        return {**super().state_dict(), "mine": Memory}


def remembers_an_object():
    """Rank 0's state, as who joins those who are further would get it."""
    job = isochron.Job(global_batch=4, timeout=60.0)
    optimizer = Memory([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    try:
        job._world.broadcast_state({"optimizers": [optimizer.state_dict()]}, 0)
    except isochron.Error as error:
        return str(error)
    finally:
        job.close()
    return "nothing"
