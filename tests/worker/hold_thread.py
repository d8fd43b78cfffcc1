#!/usr/bin/env python3
"""hold_thread.py PROCESS NAME: stops one thread of a process, by ptrace, until the process is gone; 77 if that is forbidden."""

import ctypes
import os
import sys
import time

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
process, name = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
for task in os.listdir(f"/proc/{process}/task"):
    with open(f"/proc/{process}/task/{task}/comm") as file:
        if file.read().strip() != name:
            continue
    if libc.ptrace(PTRACE_SEIZE, int(task), None, None) or libc.ptrace(PTRACE_INTERRUPT, int(task), None, None):
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
    while os.path.exists(f"/proc/{process}/task/{task}"):
        try:
            os.waitpid(int(task), os.WNOHANG | 0x40000000)  # __WALL
        except ChildProcessError:
            break
        time.sleep(0.1)
    sys.exit(0)
sys.exit(f"process {process} has no thread {name}")
