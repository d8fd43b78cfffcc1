"""Brings up the ranks of the tests: imports torch and the cases once, then forks a process for each that is asked for.

Started by ranks.py, with the socket to report to. A rank runs cases that the tests send, one after the other; its
process lives as long as its group is wanted.
"""

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from datetime import timedelta
from multiprocessing.connection import Client

import torch
import torch._dynamo  # the first optimizer would import it, which takes seconds in every rank
import torch.distributed as dist

import torch_cases

TIMEOUT = timedelta(seconds=600)


def join(tests, rank, size, port, backend):
    store = dist.TCPStore("127.0.0.1", port, size, is_master=port == 0, timeout=TIMEOUT, wait_for_workers=False)
    tests.send(store.port)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def serve_rank(address, number):
    tests = Client(address)
    tests.send((number, os.getpid()))
    rank, size, port, backend = tests.recv()
    if size > 0:
        join(tests, rank, size, port, backend)
    while True:
        name, arguments = tests.recv()
        module, _, name = name.rpartition(":")
        try:
            holder = importlib.import_module(module) if module else torch_cases
            tests.send((True, getattr(holder, name)(**arguments)))
        except BaseException:
            tests.send((False, traceback.format_exc()))


def main():
    address = sys.argv[1]
    if "ISOCHRON_TEST_RANK" in os.environ:
        sys.exit("a rank has started this program again: its connection would be taken for that of a new rank")
    os.environ["ISOCHRON_TEST_RANK"] = "of the tests"
    torch.set_num_threads(1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # tells where a rank hangs
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the ranks
    wishes = Client(address)
    while True:
        number = wishes.recv()
        if os.fork() == 0:
            wishes.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve_rank(address, number)
            except EOFError:
                os._exit(0)


try:
    main()
except EOFError:
    pass
