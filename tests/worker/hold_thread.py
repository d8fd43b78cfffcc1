#!/usr/bin/env python3
"""hold_thread.py NAME PROCESS...: stops a thread of each process, by ptrace, until all are gone; 77 if forbidden.

The first threads of the processes are computing then.
"""

import ctypes
import os
import sys
import time

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
name, *processes = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def find(process):
    for task in os.listdir(f"/proc/{process}/task"):
        with open(f"/proc/{process}/task/{task}/comm") as file:
            if file.read().strip() == name:
                return f"/proc/{process}/task/{task}"
    sys.exit(f"process {process} has no thread {name}")


def computes(process):
    with open(f"/proc/{process}/task/{process}/stat") as file:
        return file.read().rpartition(") ")[2].startswith("R")


threads = [find(process) for process in processes]
while not all(computes(process) for process in processes):  # so that no exchange is about to end
    time.sleep(0.001)
for thread in threads:
    task = int(os.path.basename(thread))
    if libc.ptrace(PTRACE_SEIZE, task, None, None) or libc.ptrace(PTRACE_INTERRUPT, task, None, None):
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
while any(os.path.exists(thread) for thread in threads):
    try:
        os.waitpid(-1, os.WNOHANG | 0x40000000)  # __WALL
    except ChildProcessError:
        break
    time.sleep(0.1)
