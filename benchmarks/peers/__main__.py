"""Runs one program: ``python -m benchmarks.peers JOB.PROGRAM --outcome FILE`` and the task (see ``Task.arguments``)."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.peers.protocol import Outcome, Task

program, option, file, *arguments = sys.argv[1:]
assert option == "--outcome", option
outcome: Outcome = import_module(f"benchmarks.peers.{program}").measure(Task.parse(arguments))
outcome.write(Path(file))
