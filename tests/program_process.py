"""Programs that run one after the other in one process, so that they share one JVM.

Starting a JVM and compiling Spark takes longer than the short form of a benchmark or of a storm. Each program still
creates and stops its own session.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

from components.python_path import python_path
from tests import ROOT


class ProgramProcess:
    """A process that runs the ``main`` of modules. It starts with the first of them, and logs to a file."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self._log = folder / "log"
        self._environment = environment or {}
        self._process: subprocess.Popen[str] | None = None

    def run(self, module: str, arguments: Sequence[str]) -> str:
        """Return the output of ``module``. Its exit code must be 0."""
        process = self._process = self._process or self._start()
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([module, *arguments]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"{module} ended the process:\n{self._log.read_text()}"
        outcome: dict[str, Any] = json.loads(answer)
        printed: str = outcome["printed"]
        assert outcome["code"] == 0, f"{printed}\n{outcome['error']}\n{self._log.read_text()}"
        return printed

    def run_short(self, module: str, results: Path) -> dict[str, Any]:
        """Run a benchmark or a storm in its short form, and return the JSON that it stores in ``results``."""
        printed, name = self.run(module, ["--short", "--results", str(results)]), module.rpartition(".")[2]
        assert (results / f"{name}.md").read_text() in printed
        report: dict[str, Any] = json.loads((results / f"{name}.json").read_text())
        return report

    def stop(self) -> None:
        """Kill the process and all of its child processes."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable, **self._environment}
        with self._log.open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.program_process"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )


def serve() -> None:
    """Run the programs requested on standard input, and reply on standard output."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # other output, such as the JVM's, goes to the log
        for line in sys.stdin:
            module, *arguments = json.loads(line)
            answers.write(json.dumps(_run(module, arguments)) + "\n")
            answers.flush()


def _run(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    code, error = 1, ""
    with redirect_stdout(io.StringIO()) as printed:
        try:
            code = import_module(module).main(arguments)
        except (Exception, SystemExit):
            error = traceback.format_exc()
    return {"code": code, "error": error, "printed": printed.getvalue()}


if __name__ == "__main__":
    serve()
