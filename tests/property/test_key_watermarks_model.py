"""Per-key watermarks against a model: each key behaves as if it had an ordinary watermark of its own.

Histories have records, values, idle and ended channels, and time. The job is restarted after every element, and it is
rescaled.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dsv2 import Collector, OneInputStreamProcessFunction, PartitionedContext
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import ManualClock, OneInputHarness
from dsv2.watermark import KeyedWatermark, KeyedWatermarkDeclaration, WatermarkDeclaration, new_builder
from dsv2.watermark.combiner import new_combiner
from tests.profiles import examples

CHANNELS, MAX_PARALLELISM = 3, 8
KEYS = range(4)
COUNT = StateDeclarations.value_state("count", int, default=0)

Delivery = tuple[int, int, int]
"""A key, the value of its watermark, and the number of records of the key before it."""


class Watch(OneInputStreamProcessFunction[int, Delivery]):
    """Counts records, and emits each watermark with the count of its key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[Delivery], ctx: PartitionedContext[Delivery]) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)

    def on_key_watermark(
        self, watermark: KeyedWatermark[int, int], output: Collector[Delivery], ctx: PartitionedContext[Delivery]
    ) -> None:
        assert ctx.state_manager.current_key == watermark.key
        output.collect((watermark.key, watermark.value, ctx.state_manager.get_state(COUNT).value()))


def declare(wait: bool, lifetime: int | None) -> tuple[KeyedWatermarkDeclaration[int, int], WatermarkDeclaration]:
    """The declaration, and that of an ordinary watermark that is otherwise equal."""
    builder = new_builder("w").type_long().combine_wait_for_all_channels(wait)
    if lifetime is not None:
        builder.expire_after(timedelta(seconds=lifetime))
    return builder.per_key(int).build(), builder.build()


class Job:
    """All subtasks of the function."""

    def __init__(self, declaration: KeyedWatermarkDeclaration[int, int], parallelism: int) -> None:
        self.declaration = declaration
        self.clock = ManualClock(0)
        self.subtasks: list[OneInputHarness[int, Delivery]] = []
        self.start(parallelism)

    def start(self, parallelism: int) -> None:
        snapshots = [one.snapshot() for one in self.subtasks]
        restored: Any = {"rescaled": snapshots} if snapshots else {}
        self.subtasks = [
            OneInputHarness(
                Watch(),
                key=lambda record: record,
                channels=CHANNELS,
                parallelism=parallelism,
                subtask=index,
                max_parallelism=MAX_PARALLELISM,
                declarations=[self.declaration],
                clock=self.clock,
                **restored,
            )
            for index in range(parallelism)
        ]

    def apply(self, event: tuple[Any, ...]) -> list[Delivery]:
        what, *rest = event
        parallelism = len(self.subtasks)
        if what == "rescale":
            self.start(*rest)
        elif what == "record":
            key, channel = rest
            self.subtasks[subtask_of(key, MAX_PARALLELISM, parallelism)].input.push(key, channel=channel)
        elif what == "send":
            key, channel, value = rest
            owner = self.subtasks[subtask_of(key, MAX_PARALLELISM, parallelism)]
            owner.input.push_watermark(self.declaration.new_watermark(value, key=key), channel=channel)
        elif what == "wait":
            for one in self.subtasks:
                one._end_batch()
            self.clock.advance(timedelta(seconds=1))
            for one in self.subtasks:
                one.advance_clock(timedelta(0))
        else:
            for one in self.subtasks:
                if what == "end":
                    one.input.end(channel=rest[0])
                else:
                    one.input.push_idle(what == "deactivate", channel=rest[0])
        told = [record for one in self.subtasks for record in one.output.records]
        for one in self.subtasks:
            one.output.clear()
        return told


class Model:
    """An ordinary combiner for each key."""

    def __init__(self, declaration: WatermarkDeclaration) -> None:
        self.declaration = declaration
        self.now = 0
        self.inactive: set[int] = set()
        self.ended: set[int] = set()
        self.combiners: dict[int, Any] = {}
        self.counts = dict.fromkeys(KEYS, 0)

    def apply(self, event: tuple[Any, ...]) -> list[Delivery]:
        what, *rest = event
        if what == "record":
            self.counts[rest[0]] += 1
        elif what == "send":
            key, channel, value = rest
            if key not in self.combiners:
                self.combiners[key] = new_combiner(self.declaration, CHANNELS, self.inactive, lambda: self.now)
            return self.delivered(key, self.combiners[key].update(channel, value))
        elif what == "wait":
            self.now += 1_000
            if self.declaration.scope.expires_after_ms is not None:
                return self.all("expire", self.now)
        elif what in ("activate", "deactivate", "end"):
            (self.inactive.discard if what == "activate" else self.inactive.add)(rest[0])
            self.ended.update(rest if what == "end" else ())
            return self.all(what, rest[0])
        return []

    def all(self, change: str, argument: int) -> list[Delivery]:
        found = [self.delivered(key, getattr(one, change)(argument)) for key, one in self.combiners.items()]
        return [told for one in found for told in one]

    def delivered(self, key: int, value: int | None) -> list[Delivery]:
        found = []
        while value is not None:
            found.append((key, value, self.counts[key]))
            value = self.combiners[key].following()
        return found


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Events that a job can see: an ended channel sends nothing, and the last one does not end."""
    channel, key = st.integers(0, CHANNELS - 1), st.sampled_from(KEYS)
    events: list[tuple[Any, ...]] = []
    idle, ended = set[int](), set[int]()
    for _ in range(draw(st.integers(1, 14))):
        one = draw(channel)
        choices = ["send"] * 5 + ["record", "wait", "rescale", "end", "idle"]
        what = draw(st.sampled_from(choices))
        if one in ended and what not in ("wait", "rescale"):
            continue
        if what == "send":
            events.append(("send", draw(key), one, draw(st.integers(0, 4))))
        elif what == "record":
            events.append(("record", draw(key), one))
        elif what == "wait":
            events.append(("wait",))
        elif what == "rescale":
            events.append(("rescale", draw(st.integers(1, 3))))
        elif what == "end" and len(ended) < CHANNELS - 1:
            ended.add(one)
            idle.discard(one)
            events.append(("end", one))
        elif what == "idle":
            events.append(("activate" if one in idle else "deactivate", one))
            idle ^= {one}
    return events


@examples(30)
@example(
    events=[("send", 0, 1, 0), ("rescale", 2), ("wait",), ("send", 0, 1, 0)], wait=False, lifetime=1, parallelism=1
)
@given(histories(), st.booleans(), st.sampled_from([None, 1, 2]), st.integers(1, 3))
def test_each_key_has_an_ordinary_watermark(
    events: list[tuple[Any, ...]], wait: bool, lifetime: int | None, parallelism: int
) -> None:
    per_key, ordinary = declare(wait, lifetime)
    job, model = Job(per_key, parallelism), Model(ordinary)
    for number, event in enumerate(events):
        assert sorted(job.apply(event)) == sorted(model.apply(event)), events[: number + 1]
