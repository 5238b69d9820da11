"""A program that kills jobs, which read from an MQTT broker, by ``kill -9``, and restarts them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dsv2.environment import ExecutionEnvironment
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import DriverSink
from dsv2.testing.connectors.kills import Kill, KilledError
from dsv2.testing.connectors.suite import run_job
from tests.forks import in_a_fork
from tests.mqtt_device import Device, MarkedSource

_PER_RUN = 4
_PER_BATCH = 2


class Death(Kill):
    """Ends the process at a step."""

    def __call__(self, step: str) -> None:
        try:
            super().__call__(step)
        except KilledError:
            os.kill(os.getpid(), signal.SIGKILL)


class Files(DriverSink[str]):
    """Writes a file for each micro-batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_batch(self, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        texts = [record for batch in batches for record in batch.records]
        (self._folder / f"{batch_id}.json").write_text(json.dumps(texts), encoding="utf-8")

    def texts(self) -> Iterable[str]:
        for file in self._folder.iterdir():
            yield from json.loads(file.read_text(encoding="utf-8"))


def run(device: Device, folder: Path, step: int) -> None:
    """Start the job, which continues from its checkpoint."""

    def build(env: ExecutionEnvironment) -> None:
        source = device.create(MarkedSource, records_per_batch=_PER_BATCH)
        env.from_source(source).with_uid("source").to_sink(Files(folder / "files")).with_uid("files")

    with Death(step).of_source(MarkedSource):
        run_job(build, str(folder / "checkpoint"), parallelism=1)


def main(url: str, certificate: str, folder: Path, kills: int) -> None:
    (folder / "files").mkdir()
    device = Device(url, certificate)
    device.subscribe()
    sent, codes = list[str](), list[int]()
    for step in range(kills):
        texts = [f"{step} {number}" for number in range(_PER_RUN)]
        device.send(*texts)
        sent += texts
        codes.append(in_a_fork(partial(run, device, folder, step)))
    assert in_a_fork(partial(run, device, folder, sys.maxsize)) == 0
    read = [*Files(folder / "files").texts()]
    killed = codes.count(-signal.SIGKILL)
    print(json.dumps({"killed": killed, "ended": codes.count(0), "sent": sent, "read": read}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
