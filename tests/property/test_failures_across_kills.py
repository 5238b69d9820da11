"""Records that fail in a job that is killed at random leave nothing behind, and each becomes one dead letter."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2.dead_letters import DeadLetters
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import ForeachBatchSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import ManualClock
from tests.profiles import examples
from tests.steps import KilledError, Steps, steps_of_files

TOTAL = StateDeclarations.value_state("total", int, default=0)
SEEN = StateDeclarations.list_state("seen", int)


class Item(NamedTuple):
    key: int
    number: int
    fails: bool


def key_of(item: Item) -> int:
    return item.key


class Both(OneInputStreamProcessFunction[Item, Any]):
    """Writes states, sets a timer and emits them, and then fails for some records."""

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL, SEEN]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        total, seen = ctx.state_manager.get_state(TOTAL), ctx.state_manager.get_state(SEEN)
        total.update(total.value() + record.number)
        seen.add(record.number)
        ctx.processing_time_manager.register_timer(record.number)
        output.collect((record.number, total.value(), tuple(seen.get())))
        if record.fails:
            raise ValueError(record.number)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", timestamp))


def run(items: list[Item], folder: Path, policy: ErrorPolicy | None, kills: list[int], **settings: Any) -> list[Any]:
    """Run the job, with kills, to its end. Returns what it has written."""
    written: dict[int, list[Any]] = {}
    for steps in map(Steps, [*kills, 10**9]):
        env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(10**6), **settings))
        env.set_parallelism(2)
        results = env.from_collection(items).with_uid("in").with_parallelism(1).key_by(key_of).process(Both())
        results.with_uid("both")
        if policy is not None:
            results.with_error_policy(policy)
        sink = ForeachBatchSink[Any](lambda records, batch_id: written.update({batch_id: records}))
        results.to_sink(sink).with_uid("out").with_parallelism(1)
        with suppress(KilledError), steps_of_files(steps):
            env.execute("both", checkpoint_location=folder)
    return sorted((record for records in written.values() for record in records), key=repr)


@examples(8)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=20),
    st.lists(st.integers(0, 14), max_size=4),
    st.booleans(),
    st.integers(0, 99),
    st.integers(1, 5),
    st.booleans(),
)
def test_results_and_states_are_those_without_what_failed(
    drawn: list[tuple[int, bool]], kills: list[int], sets_aside: bool, seed: int, batch: int, fast: bool
) -> None:
    items = [Item(key, number, fails) for number, (key, fails) in enumerate(drawn)]
    good, bad = [item for item in items if not item.fails], [item for item in items if item.fails]
    policy = ErrorPolicy().dead_letter(ValueError) if sets_aside else ErrorPolicy().skip(ValueError)
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        expected = run(good, Path(one), None, [], seed=seed, batches=[batch], fast=fast)
        assert run(items, Path(other), policy, kills, seed=seed, batches=[batch], fast=fast) == expected
        if sets_aside:
            letters = DeadLetters.open(other)
            found = [letters.record(letter, Item) for letter in letters.letters]
            assert sorted(found, key=repr) == sorted(bad, key=repr)
