"""Whole programs whose parallelism changes between micro-batches: no record is lost, doubled or late, and all ends.

Every record is stamped after the event time that its sender, or any sender that it replaces, has sent. So the model is
the set of records by window.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import OperatorKind, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.rescale import EarlierInput, EarlierOperator, changes, rescaled_states
from dsv2.runtime.rescale.snapshots import rescaled_stores
from dsv2.runtime.serde.codec import BlobKind
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.state.rows import unsealed_state
from dsv2.sinks import CollectSink
from dsv2.watermark import WatermarkDeclaration, new_builder
from dsv2.watermark.event_time import LONG_MIN, SentEventTime
from tests.durations import ms
from tests.profiles import examples
from tests.support import Signal, elements, job_context, local_environment

ROUND = new_builder("round").type_long().combine_function_max().combine_wait_for_all_channels(True).aligned().build()
WIDTH = 10
Step: TypeAlias = tuple[str, int]


class Passing(OneInputStreamProcessFunction[Any, Any]):
    """Forwards records, and declares the aligned watermark."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [ROUND, EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class Windows(OneInputWindowStreamProcessFunction[Any, Any]):
    """Emits the records of each window."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect((ctx.state_manager.current_key, window.start_time, *sorted(window.get_all_records())))

    def on_late_record(self, record: Any, output: Any, ctx: Any) -> None:
        raise AssertionError(f"{record} is late")


class Program:
    """A source, a function without keys, windows by key, another function, and a sink."""

    def __init__(self, parallelism: Sequence[int], choice: random.Random, before: Program | None = None) -> None:
        env = local_environment()
        first, second, third, last = parallelism
        stream: Any = env.from_collection(list[Any](), "in").with_parallelism(first)
        stream = stream.process(Passing()).with_uid("pass").with_parallelism(second)
        stream = stream.key_by(lambda number: number % 7).window(WindowStrategy.tumbling(ms(WIDTH))).process(Windows())
        stream = stream.with_uid("windows").with_parallelism(third)
        stream = stream.process(Passing()).with_uid("after").with_parallelism(last)
        stream.to_sink(CollectSink()).with_uid("out").with_parallelism(1)
        self.plan: Plan = env.build_plan()
        self._choice = choice
        self._job = job_context(self.plan)
        self._queues: dict[tuple[int, int, int], deque[Frame]] = {}
        self._out: list[Frame] = []
        self._source = self.plan.operators[0]
        self.senders = [SourceTask(self.plan, self._source, n, self._emit, {}) for n in range(first)]
        self._subtasks = {
            (head, index): self._new_subtask(head, index)
            for head, chain in self.plan.chains.items()
            for index in range(chain[0].parallelism)
        }
        if before is None:
            for subtask in self._subtasks.values():
                subtask.open()
        else:
            self._restore(before)
        for subtask in self._subtasks.values():
            subtask.begin_batch()
            subtask.flush()
        self.run()

    def _new_subtask(self, head: int, index: int) -> Subtask:
        functions = {operator.id: copy.deepcopy(operator.function) for operator in self.plan.chains[head]}
        return Subtask(self.plan, head, index, functions, self._job, self._emit)

    def _emit(self, frame: Frame) -> None:
        if self.plan.operators[frame.operator].kind is OperatorKind.SINK:
            self._out.append(frame)
        else:
            self._queues.setdefault((frame.operator, frame.subtask, frame.channel), deque()).append(frame)

    def run(self) -> None:
        """Deliver everything, in a random order of channels."""
        for sender in self.senders:
            sender.flush()
        while places := [place for place, queue in self._queues.items() if queue]:
            operator, index, channel = self._choice.choice(places)
            frame = self._queues[operator, index, channel].popleft()
            subtask = self._subtasks[operator, index]
            subtask.receive(channel, frame.batch, frame.controls)
            subtask.flush()

    def states(self) -> dict[str, list[Any]]:
        """The snapshots of the subtasks of each operator."""
        found: dict[str, list[Any]] = {}
        for (_, index), subtask in self._subtasks.items():
            state, _ = unsealed_state(subtask.snapshot(), self._job.codec, f"Subtask {index}")
            for uid, of_operator in state.items():
                found.setdefault(uid, []).append(of_operator)
        return found

    def described(self) -> dict[str, EarlierOperator]:
        plan = self.plan
        return {
            operator.uid: EarlierOperator(
                operator.parallelism,
                operator.max_parallelism,
                tuple(
                    EarlierInput(plan.operators[edge.source].uid, edge.output, edge.exchange)
                    for edge in plan.edges_into[operator.id]
                ),
            )
            for operator in plan.operators
        }

    def _restore(self, before: Program) -> None:
        codec, found, states = self._job.codec, changes(self.plan, before.described()), before.states()
        new: dict[str, list[Any]] = {}
        for operator in (operator for chain in self.plan.chains.values() for operator in chain):
            old = states[operator.uid]
            parts = rescaled_states(operator, found[operator.uid], old, self.plan.declarations, codec)
            stores = rescaled_stores(operator, [state["store"] for state in old], codec)
            new[operator.uid] = [{**part, "store": store} for part, store in zip(parts, stores, strict=True)]
        for (head, index), subtask in self._subtasks.items():
            of_chain = {operator.uid: new[operator.uid][index] for operator in self.plan.chains[head]}
            subtask.restore(codec.seal(BlobKind.STATE, (of_chain, {})))
        senders = [sender.sender.snapshot() for sender in before.senders]
        for index, sender in enumerate(self.senders):
            same = len(senders) == len(self.senders)
            sender.sender.restore(senders[index] if same else SentEventTime.successor(senders))
            if not same:
                sender.control(STATUS, "", False)  # the coordinator of a source reports the status of new readers

    def results(self) -> list[Any]:
        return elements(self._out)

    @property
    def ended(self) -> bool:
        return all(subtask.ended for subtask in self._subtasks.values())


PARALLELISM = st.tuples(*[st.integers(1, 3)] * 4)
STEPS = st.lists(
    st.tuples(st.just("record"), st.integers(0, 30))
    | st.tuples(st.just("time"), st.integers(0, 15))
    | st.tuples(st.sampled_from(["round", "idle", "run"]), st.just(0)),
    max_size=25,
)


class Sending:
    """Sends steps through a program, and notes what windows must contain."""

    def __init__(self, senders: int) -> None:
        self.expected: dict[tuple[int, int], list[int]] = {}
        self._times = [LONG_MIN] * senders
        self._rounds = [0] * senders
        self._idle = set[int]()
        self._count = 0

    def change(self, senders: int) -> None:
        """Continue with another number of senders. Each has reached what all active ones had."""
        if senders != len(self._times):
            active = [time for sender, time in enumerate(self._times) if sender not in self._idle]
            self._times = [min(active) if active else max(self._times)] * senders
            self._rounds = [0] * senders
            self._idle.clear()

    def step(self, program: Program, channel: int, what: str, amount: int) -> None:
        sender = program.senders[channel]
        if what == "run":
            program.run()
        elif what == "idle":
            # Behind a round that is not complete it would count later, when event time may have passed what follows it.
            if self._rounds[channel] == min(self._rounds):
                sender.sender.declare_status(True)
                self._idle.add(channel)
                self._rounds[channel] = max(self._rounds)  # the others do not wait for it
        elif what == "round":
            sender.control(WATERMARK, "round", 1)
            self._rounds[channel] += 1
        elif what == "time":
            self._wake(program, channel)
            self._times[channel] = max(self._times[channel], 0) + amount
            sender.sender.send(self._times[channel])
        else:
            self._wake(program, channel)
            self._count += 1
            timestamp = max(self._times[channel], 0) + 1 + amount
            sender.send(RecordBatch([self._count], [timestamp]))
            start = timestamp - timestamp % WIDTH
            self.expected.setdefault((self._count % 7, start), []).append(self._count)

    def _wake(self, program: Program, channel: int) -> None:
        if channel in self._idle:  # it catches up at once: otherwise its records might be late
            self._idle.discard(channel)
            self._times[channel] = max(self._times)
            program.senders[channel].sender.declare_status(False)
            program.senders[channel].sender.send(self._times[channel])
            program.run()


@examples(75)
@given(PARALLELISM, st.lists(st.tuples(PARALLELISM, STEPS), min_size=1, max_size=3), STEPS, st.randoms())
def test_no_record_is_lost_doubled_or_late(
    parallelism: tuple[int, ...],
    later: list[tuple[tuple[int, ...], list[Step]]],
    steps: list[Step],
    choice: random.Random,
) -> None:
    sending, program, results = Sending(parallelism[0]), Program(parallelism, choice), list[Any]()
    for (following, _), of_program in zip(later, [steps, *(more for _, more in later)], strict=False):
        for what, amount in of_program:
            sending.step(program, choice.randrange(len(program.senders)), what, amount)
        program.run()
        results += program.results()
        program = Program(following, choice, program)
        sending.change(following[0])
    for what, amount in later[-1][1]:
        sending.step(program, choice.randrange(len(program.senders)), what, amount)
    for sender in program.senders:
        sender.end()
    program.run()
    assert program.ended
    fired = [element for element in [*results, *program.results()] if not isinstance(element, Signal)]
    assert len(fired) == len(sending.expected)
    assert {(key, start): numbers for key, start, *numbers in fired} == sending.expected
