"""A local job with sinks on the driver, which kills its own process at a given step: FOLDER STEP.

It prints each record, and at its end what it has collected.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from dsv2 import CollectSink, ExecutionEnvironment, PrintSink
from dsv2.local import LocalRuntime
from dsv2.sources import DataGeneratorSource
from tests.steps import Steps, steps_of_files

RECORDS, PER_BATCH = 12, 2


class Kills(Steps):
    """Kills the process, which then writes nothing more, also not what its output holds back."""

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, step: str) -> None:
    """Run the job, or continue it."""
    env, collected = ExecutionEnvironment.get_instance(LocalRuntime(checks=False)), CollectSink[int]()
    numbers = env.from_source(DataGeneratorSource(int, count=RECORDS, records_per_batch=PER_BATCH))
    numbers.to_sink(PrintSink("printed")).with_uid("printed")
    numbers.to_sink(collected).with_uid("collected")
    with steps_of_files(Kills(int(step))):
        env.execute("numbers", checkpoint_location=Path(folder, "checkpoint"))
    print("collected", *collected.results)


if __name__ == "__main__":
    main(*sys.argv[1:])
