"""Ports of this host for tests that must name one before anybody listens there."""

import random
import socket


def free_ports(count):
    """Below those that the system gives out by itself, and different from run to run."""
    found = []
    while len(found) < count:
        port = random.randrange(16000, 32000)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
