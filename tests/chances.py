"""Random inputs for what comes from strangers, others in every run. The seed is printed: the variable ISOCHRON_SEED
repeats those of a run that failed."""

import os
import random
import secrets

STRANGE = [None, True, False, 0, -1, 1 << 70, 0.5, 1e308, float("nan"), float("inf"), "", "\ud800", "x" * 5000, [], {},
           [[]], [None], {"": None}]  # fmt: skip


def make_chance():
    seed = int(os.environ.get("ISOCHRON_SEED") or secrets.randbits(32))
    print(f"ISOCHRON_SEED={seed} repeats this", flush=True)
    return random.Random(seed)


def scribbled(chance, message):
    """The JSON value with something in it put in the place of something else, left out or added."""
    if not isinstance(message, (dict, list)) or not message or chance.random() < 0.3:
        return chance.choice(STRANGE)
    keys = list(message) if isinstance(message, dict) else range(len(message))
    key = chance.choice(keys)
    if chance.random() < 0.2:
        if isinstance(message, dict):
            return {name: value for name, value in message.items() if name != key}
        return message[:key] + message[key + 1 :]
    if chance.random() < 0.1:
        return {**message, "more": chance.choice(STRANGE)} if isinstance(message, dict) else [*message, message]
    changed = dict(message) if isinstance(message, dict) else list(message)
    changed[key] = scribbled(chance, message[key])
    return changed


def random_json(chance, depth=0):
    """Any JSON value."""
    if depth > 3 or chance.random() < 0.5:
        return chance.choice([*STRANGE, "é" * 300, chance.random(), "name", "x" * 9000])
    children = [random_json(chance, depth + 1) for _ in range(chance.randrange(4))]
    names = ["name", "value", "ranks", "x"]
    return children if chance.random() < 0.5 else {chance.choice(names): one for one in children}


def changed(chance, said):
    """Other bytes: some flipped, cut off, doubled or put in between."""
    data = bytearray(said)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(data) + 1)
        how = chance.randrange(4)
        if how == 0 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif how == 1:
            del data[place:]
        elif how == 2:
            data[place:place] = chance.randbytes(chance.randint(1, 40))
        else:
            data += data[place:]
    return bytes(data)
