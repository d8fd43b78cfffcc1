#!/usr/bin/env python3
"""failed_only.py REPORT COMMAND…: runs a GoogleTest program.

With ISOCHRON_FAILED_ONLY=1, which scripts/test.py sets for a second try, only the cases run that failed according to
the report of the first; a program that crashed left none, and runs whole.
"""

import os
import pathlib
import sys
import xml.etree.ElementTree

report, *command = sys.argv[1:]
if os.environ.get("ISOCHRON_FAILED_ONLY") == "1" and pathlib.Path(report).exists():
    cases = xml.etree.ElementTree.parse(report).iter("testcase")
    failed = [f"{case.get('classname')}.{case.get('name')}" for case in cases if case.find("failure") is not None]
    if failed:
        command = [word for word in command if not word.startswith("--gtest_filter=")]
        command.append(f"--gtest_filter={':'.join(failed)}")
        for name in ("GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"):  # one of several parts might get none of them
            os.environ.pop(name, None)
os.execvp(command[0], command)
