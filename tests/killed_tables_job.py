"""A job that writes a table, killed again and again: ``python -m tests.killed_tables_job FORMAT FOLDER KILLS OPTIONS``.

Each start is a fork, which has the libraries already. It writes a micro-batch, and is killed within the second one: at
a step, which is a call or a return in a module of the connector or its library, or when a file exceeds a size. The last
start is not killed. Prints JSON: the numbers of steps and of records, and the rows of the table.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import deltalake  # noqa: F401 - before the forks
import pyarrow.parquet  # noqa: F401
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow  # noqa: F401

from dsv2 import ExecutionEnvironment
from dsv2.connectors.lakehouse.sink import LakehouseSink
from dsv2.local import LocalRuntime
from dsv2.sources import DataGeneratorSource
from tests.forks import in_a_fork
from tests.lakehouse_tables import FORMATS, TableOnDisk

PER_BATCH = 4
_PACKAGES = ("/dsv2/connectors/", "/deltalake/", "/pyiceberg/")
_SIZES = (1, 300, 900, 1400, 2500, 5000, 9000, 20_000)  # of data, logs, manifests, metadata, and a catalog in SQLite


class Sale(NamedTuple):
    item: str
    amount: int


def sale(number: int) -> Sale:
    return Sale(f"item {number}", number)


class Kill:
    """Kills this process within the second micro-batch, at ``step`` or when a file exceeds ``size``, or at its end."""

    def __init__(self, step: int = 0, size: int = 0) -> None:
        self._step = step
        self._size = size
        self._written = 0
        self.steps = 0

    def watch(self, write: Callable[..., None]) -> Callable[..., None]:
        def watched(*arguments: Any) -> None:
            self._written += 1
            if self._written != 2:
                write(*arguments)
                return
            if self._size:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, resource.RLIM_INFINITY))
            sys.setprofile(self._profiled)
            try:
                write(*arguments)
            finally:
                sys.setprofile(None)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if self._step or self._size:
                os.kill(os.getpid(), signal.SIGKILL)

        return watched

    def _profiled(self, frame: FrameType, event: str, argument: object) -> None:
        if any(package in frame.f_code.co_filename for package in _PACKAGES):
            self.steps += 1
            if self.steps == self._step:
                os.kill(os.getpid(), signal.SIGKILL)


def run(table: TableOnDisk, count: int, kill: Kill, options: dict[str, Any]) -> None:
    """Start the job, which continues from its checkpoint."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # which Python ignores
    LakehouseSink.write = kill.watch(LakehouseSink.write)  # type: ignore[method-assign]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[PER_BATCH]))
    numbers = env.from_source(DataGeneratorSource(lambda index: index, count=count)).with_uid("in")
    numbers.map(sale).with_uid("made").to_sink(table.sink(Sale, **options)).with_uid("sales")
    env.execute("sales", checkpoint_location=table.folder / "checkpoint")
    (table.folder / "steps").write_text(str(kill.steps), encoding="utf-8")


def main(name: str, folder: Path, kills: int, options: dict[str, Any]) -> None:
    trial = FORMATS[name](folder / "trial")
    trial.folder.mkdir()
    assert in_a_fork(lambda: run(trial, 3 * PER_BATCH, Kill(), options)) == 0
    steps = int((trial.folder / "steps").read_text(encoding="utf-8"))
    orders = [Kill(step=1 + number * steps // kills) for number in range(kills + 1)]
    orders += [Kill(size=size) for size in _SIZES[:: max(1, 4 * len(_SIZES) // kills)]]
    table, count = FORMATS[name](folder), PER_BATCH * (len(orders) + 2)
    codes = [in_a_fork(partial(run, table, count, kill, options)) for kill in orders]
    assert {*codes} <= {-signal.SIGKILL, -signal.SIGXFSZ}
    assert in_a_fork(lambda: run(table, count, Kill(), options)) == 0
    print(json.dumps({"steps": steps, "rows": table.rows(), "count": count}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4]))
