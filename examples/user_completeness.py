"""The steps of each user on a day, as soon as all devices of the user have uploaded theirs (per-key watermarks).

A phone, a watch and a tablet count the steps of their user, and upload them when they have a connection: in parts, some
hours late, each at its own time. At the end of its upload a device says so. A user's total is complete when all devices
of the user have said so, which has nothing to do with other users. So the signal is a watermark about one user: it
follows the uploads of the device through the exchange, to the function that keeps the totals.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
    WatermarkDeclaration,
    new_builder,
)
from dsv2.watermark import KeyedWatermark
from examples.program import Table, execute, run_example

__all__ = ("DailySteps", "Upload", "count_steps", "main", "some_uploads")

DEVICES = ("phone", "watch", "tablet")

# The devices of a user that have uploaded everything. Subtasks that read other devices of the user do not block it.
UPLOADED = new_builder("uploaded").type_set(str).combine_function_union().per_key(str).build()


class Upload(NamedTuple):
    """Steps that a device has counted, or the end of its upload (``is_last``, without steps).

    Attributes:
        user: The name of the user.
        device: The device.
        devices: The number of devices of the user.
        steps: The number of steps.
        is_last: Whether the device has uploaded everything.
    """

    user: str
    device: str
    devices: int
    steps: int
    is_last: bool = False


class DailySteps(NamedTuple):
    """The steps of ``user`` on the day, on all ``devices``."""

    user: str
    steps: int
    devices: int


class ReportDevices(OneInputStreamProcessFunction[Upload, Upload]):
    """On a stream keyed by device: passes steps on, and emits a watermark about the user when a device has finished."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [UPLOADED]

    def process_record(self, record: Upload, output: Collector[Upload], ctx: PartitionedContext[Upload]) -> None:
        if not record.is_last:
            output.collect(record)
            return
        watermark = UPLOADED.new_watermark({record.device}, key=record.user)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)


class AddSteps(OneInputStreamProcessFunction[Upload, DailySteps]):
    """On a stream keyed by user: adds steps, and emits the total when the last device has finished."""

    STEPS = StateDeclarations.value_state("steps", int, default=0)
    EXPECTED = StateDeclarations.value_state("expected devices", int, default=0)
    FINISHED = StateDeclarations.map_state("finished devices", str, bool)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.STEPS, self.EXPECTED, self.FINISHED]

    def process_record(
        self, record: Upload, output: Collector[DailySteps], ctx: PartitionedContext[DailySteps]
    ) -> None:
        steps = ctx.state_manager.get_state(self.STEPS)
        steps.update(steps.value() + record.steps)
        ctx.state_manager.get_state(self.EXPECTED).update(record.devices)

    def on_key_watermark(
        self, watermark: KeyedWatermark, output: Collector[DailySteps], ctx: PartitionedContext[DailySteps]
    ) -> None:
        states = ctx.state_manager
        steps, expected = states.get_state(self.STEPS), states.get_state(self.EXPECTED)
        finished = states.get_state(self.FINISHED)
        for device in sorted(watermark.value):
            finished.put(device, True)
        if len(list(finished.keys())) == expected.value():
            output.collect(DailySteps(watermark.key, steps.value(), expected.value()))
            steps.clear()
            expected.clear()
            finished.clear()


def count_steps(uploads: NonKeyedPartitionStream[Upload]) -> NonKeyedPartitionStream[DailySteps]:
    """Emit the steps of each user when they are complete. The uploads of a device must be in order."""
    reported = uploads.key_by(device_of).process(ReportDevices()).with_uid("report devices")
    return reported.key_by(user_of).process(AddSteps()).with_uid("add steps")


def device_of(upload: Upload) -> tuple[str, str]:
    """Return the device that has sent an upload."""
    return upload.user, upload.device


def user_of(upload: Upload) -> str:
    """Return the user of an upload."""
    return upload.user


def some_uploads(users: int = 60, seed: int = 1) -> list[Upload]:
    """Generate the uploads of a day. Most users have two devices. Each uploads 3 to 30 parts within some hours."""
    choice = random.Random(seed)
    uploads: list[tuple[float, Upload]] = []
    for number in range(users):
        user, devices = f"user {number:02}", choice.sample(DEVICES, choice.choice((1, 2, 2, 2, 3)))
        for device in devices:
            begin, pace = choice.uniform(0, 12), choice.uniform(0.01, 0.1)  # in hours
            parts = choice.randint(3, 30)
            for part in range(parts):
                uploads.append((begin + part * pace, Upload(user, device, len(devices), choice.randint(20, 900))))
            uploads.append((begin + parts * pace, Upload(user, device, len(devices), 0, is_last=True)))
    return [upload for _, upload in sorted(uploads)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("user_completeness", "Adds the steps of users, until they are complete.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[DailySteps]()
    count_steps(env.from_collection(some_uploads()).with_parallelism(1)).to_sink(sink)
    execute(env, "user completeness", options)
    return Table(f"{len(sink.results)} users", ("user", "steps", "devices"), sorted(sink.results))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import user_completeness

    sys.exit(user_completeness.main())
