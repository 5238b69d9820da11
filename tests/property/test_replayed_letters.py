"""Dead letters that are processed again by a corrected program give the results of a program that never failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2.dead_letters import DeadLetters, LetterStatus, StoredLetter
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from tests.profiles import examples

TOTAL = StateDeclarations.value_state("total", int, default=0)
OTHERS = StateDeclarations.list_state("others", int)
RULES = StateDeclarations.map_state_builder("rules", int, int).build_broadcast()


class Item(NamedTuple):
    """A record. ``fails_at``: Where a program with errors fails for it; 0: nowhere."""

    key: int
    value: int
    fails_at: int


class Checks:
    """Part of all functions of the program."""

    def __init__(self, has_errors: bool) -> None:
        self.has_errors = has_errors

    def check(self, item: Item, place: int) -> None:
        """Fail if the program has errors, and ``item`` is one that fails here."""
        if self.has_errors and item.fails_at == place:
            raise ValueError(f"{item} at {place}")


class Mapped(Checks):
    def __call__(self, item: Item) -> Item:
        self.check(item, 1)
        return item._replace(value=item.value + 100)


class Chained(Checks):
    def __call__(self, item: Item) -> Item:
        self.check(item, 8)
        return item


class Selected(Checks):
    def __call__(self, item: Item) -> int:
        self.check(item, 2)
        return item.key


def key_of(item: Item) -> int:
    return item.key


class Total(Checks, OneInputStreamProcessFunction[Item, Item]):
    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + record.value)
        output.collect(record)
        self.check(record, 3)


class Both(Checks, TwoInputNonBroadcastStreamProcessFunction[Item, Item, Item]):
    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL, OTHERS]

    def process_record_from_first_input(self, record: Item, output: Any, ctx: Any) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + record.value)
        self.check(record, 4)

    def process_record_from_second_input(self, record: Item, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(OTHERS).add(record.value)
        output.collect(record)
        self.check(record, 5)


class Ruled(Checks, TwoInputBroadcastStreamProcessFunction[Item, Item, Item]):
    def uses_states(self) -> list[StateDeclaration]:
        return [RULES]

    def process_record_from_non_broadcast_input(self, record: Item, output: Any, ctx: Any) -> None:
        output.collect(record)
        self.check(record, 6)

    def process_record_from_broadcast_input(self, record: Item, ctx: Any) -> None:
        ctx.state_manager.get_state(RULES).put(10 * record.value + record.key, 1)
        self.check(record, 7)


class Result(NamedTuple):
    """The results that must not depend on failures. Lists are sorted."""

    outputs: list[Counter[Item]]
    totals: dict[int, int]
    joined: dict[int, int]
    others: dict[int, list[int]]
    rules: list[dict[int, int]]


class Job:
    """The job in ``folder``, whose runs continue each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._outputs: list[Counter[Item]] = [Counter(), Counter(), Counter()]
        self._savepoint: str | None = None
        self._runs = 0

    def run(self, items: list[Any], *, has_errors: bool, parallelism: int, batch: int) -> None:
        """Process the items until the next stop, and take a savepoint that replays the letters."""
        env = ExecutionEnvironment.get_instance(LocalRuntime(seed=batch, batches=[batch]))
        env.set_parallelism(parallelism)
        env.set_error_policy(ErrorPolicy().dead_letter(ValueError))
        source = env.from_source(TestSource[Item](items), "items").with_uid("items")
        mapped = source.map(Mapped(has_errors)).with_uid("mapped")
        total = mapped.key_by(Selected(has_errors), version=1).process(Total(has_errors)).with_uid("total")
        chained = total.map(Chained(has_errors)).with_uid("chained")
        both = mapped.key_by(key_of).connect_and_process(source.key_by(key_of), Both(has_errors)).with_uid("both")
        ruled = mapped.connect_and_process(source.broadcast(), Ruled(has_errors)).with_uid("ruled").with_parallelism(2)
        sinks = [CollectSink[Item]() for _ in self._outputs]
        for number, (stream, sink) in enumerate(zip((chained, both, ruled), sinks, strict=True)):
            stream.to_sink(sink).with_uid(f"sink {number}")
        job = env.execute_async("job", savepoint=self._savepoint, dead_letters=self._folder / "letters")
        job.await_termination()
        taken = job.savepoint(self._folder / f"taken {self._runs}")
        for output, sink in zip(self._outputs, sinks, strict=True):
            output.update(sink.results)
        savepoint = Savepoint.open(taken)
        of_run = self._letters(savepoint.origin.job_id)
        self._savepoint = savepoint.edit().replay(of_run).write(self._folder / f"edited {self._runs}")
        self._runs += 1
        self.replayed = len(of_run)

    def _letters(self, job_id: str) -> list[StoredLetter]:
        """The letters of a run."""
        if not (self._folder / "letters").exists():
            return []
        letters = DeadLetters.open(self._folder / "letters")
        of_run = [letter for letter in letters.letters if letter.job_id == job_id]
        assert all(letters.status(letter) is LetterStatus.NEW for letter in of_run)
        return of_run

    def result(self) -> Result:
        """Return the result after the last run."""
        assert self._savepoint is not None
        savepoint = Savepoint.open(self._savepoint)

        def values(uid: str, name: str) -> dict[Any, Any]:
            rows = savepoint.state(uid, name).to_arrow().to_pylist()
            return {row["key"]: sorted(v) if isinstance(v := row["value"], list) else v for row in rows}

        rules = [dict(row["value"]) for row in savepoint.state("ruled", "rules").to_arrow().to_pylist()]
        return Result(self._outputs, values("total", "total"), values("both", "total"), values("both", "others"), rules)


ITEMS = st.lists(st.builds(Item, st.integers(0, 3), st.integers(0, 9), st.integers(0, 8)), min_size=1, max_size=12)
RUNS = st.lists(st.tuples(ITEMS, st.integers(1, 3)), min_size=1, max_size=3)
LAST = Item(9, 1, 0)


@examples(6)
@given(RUNS, st.integers(1, 3), st.integers(1, 5))
def test_replay_makes_up_for_failures(runs: list[tuple[list[Item], int]], parallelism: int, batch: int) -> None:
    items: list[Any] = [item for of_run, _ in runs for item in (*of_run, Stop())]
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        failing, steady = Job(Path(one)), Job(Path(other))
        for _, of_run in runs:
            failing.run([*items, LAST, Stop()], has_errors=True, parallelism=of_run, batch=batch)
        failing.run([*items, LAST, Stop()], has_errors=False, parallelism=parallelism, batch=batch)
        assert failing.replayed == 0
        plain = [item for of_run, _ in runs for item in of_run]
        steady.run([*plain, LAST, Stop()], has_errors=False, parallelism=1, batch=batch)
        assert failing.result() == steady.result()
