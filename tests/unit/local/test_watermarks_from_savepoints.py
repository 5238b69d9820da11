"""Watermarks of local jobs that continue from a savepoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dsv2.errors import IncompatibleCheckpointError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.watermark import LongWatermarkDeclaration, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.functions import Pass
from tests.unit.local.test_local_savepoints import Ends, Program


class Marks(OneInputStreamProcessFunction[int, int]):
    """Forwards records. Even ones are also watermarks."""

    def __init__(self, *declarations: LongWatermarkDeclaration) -> None:
        self.declarations = declarations

    def declare_watermarks(self) -> tuple[LongWatermarkDeclaration, ...]:
        return self.declarations

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        for declared in self.declarations if record % 2 == 0 else ():
            ctx.non_partitioned_context.watermark_manager.emit_watermark(declared.new_watermark(record))


def test_aligned_watermark_that_blocks_channels_must_stay_declared(tmp_path: Path) -> None:
    aligned = new_builder("even").type_long().combine_wait_for_all_channels(True).aligned().build()

    def marked(*declarations: LongWatermarkDeclaration) -> Callable[[Any, int], Any]:
        def build(stream: Any, parallelism: int) -> Any:
            keyed = stream.key_by(lambda number: number % 2).process(Marks(*declarations)).with_uid("marks")
            return keyed.with_parallelism(parallelism).shuffle().process(Ends()).with_uid("end").with_parallelism(1)

        return build

    Program(range(40), marked(aligned)).run(stop=25, parallelism=3).savepoint(tmp_path / "a")
    Program(range(40), marked(aligned)).run(start=tmp_path / "a", parallelism=3)
    with pytest.raises(IncompatibleCheckpointError, match=r"blocked channels.*no longer declares 'even'"):
        Program(range(40), marked()).run(start=tmp_path / "a", parallelism=3)


def test_watermark_that_waits_behind_a_blocked_channel_must_stay_declared(tmp_path: Path) -> None:
    aligned = new_builder("even").type_long().combine_wait_for_all_channels(True).aligned().build()
    behind = new_builder("behind").type_long().build()  # always follows ``even``, so the gate has not combined it

    def marked(*declarations: LongWatermarkDeclaration) -> Callable[[Any, int], Any]:
        def build(stream: Any, parallelism: int) -> Any:
            keyed = stream.key_by(lambda number: number % 2).process(Marks(*declarations)).with_uid("marks")
            return keyed.with_parallelism(parallelism).shuffle().process(Ends()).with_uid("end").with_parallelism(1)

        return build

    Program(range(40), marked(aligned, behind)).run(stop=25, parallelism=3).savepoint(tmp_path / "a")
    Program(range(40), marked(aligned, behind)).run(start=tmp_path / "a", parallelism=3)
    with pytest.raises(IncompatibleCheckpointError, match=r"blocked channels.*no longer declares 'behind'"):
        Program(range(40), marked(aligned)).run(start=tmp_path / "a", parallelism=3)


class Bounds(Marks):
    """Emits two watermarks: 30 with the record 0, and 35 with the record 20."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for declared in self.declarations if record in (0, 20) else ():
            ctx.non_partitioned_context.watermark_manager.emit_watermark(declared.new_watermark(30 + record // 4))


class Neither(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """Ignores records."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        pass


class Sees(OneInputStreamProcessFunction[Any, int]):
    """Emits the watermarks that it receives."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        pass

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(watermark.value)
        return WatermarkHandlingResult.PEEK


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parallelism", [(2, 3), (3, 1)])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("new_bounds", [False, True])
def test_watermarks_combined_across_inputs_continue(
    tmp_path: Path, new_bounds: bool, aligned: bool, parallelism: tuple[int, int], seed: int
) -> None:
    builder = new_builder("w").type_long().combine_across_inputs(True).combine_wait_for_all_channels(True)
    declared = (builder.aligned() if aligned else builder).build()

    def program(bounds: str) -> Program:
        def build(stream: Any, parallelism: int) -> Any:
            first = stream.process(Marks(declared)).with_uid("marks").with_parallelism(1).shuffle()
            second = stream.process(Bounds(declared)).with_uid(bounds).with_parallelism(1).shuffle()
            both = first.connect_and_process(second, Neither()).with_uid("both").with_parallelism(parallelism)
            return both.shuffle().process(Sees()).with_uid("sees").with_parallelism(1)

        return Program(range(60), build)

    program("bounds").run(stop=10, parallelism=parallelism[0], seed=seed).savepoint(tmp_path / "a")
    continued = program("new bounds" if new_bounds else "bounds")
    continued.run(start=tmp_path / "a", stop=40, parallelism=parallelism[1], seed=seed)
    if aligned:
        assert continued.results == [2]  # 0 met 30 before the savepoint, and 2 waited for 35
    elif new_bounds:
        assert continued.results[0] >= 14  # nothing before the new input has sent 35
        assert continued.results[-1] == 35
    else:
        assert continued.results == [*range(10, 36, 2), 35]


@dataclass(frozen=True)
class Step:
    """A value without an order."""

    number: int


TYPED: dict[str, tuple[WatermarkDeclaration, Callable[[int], Any]]] = {
    "union": (new_builder("w").type_set(int).build(), lambda record: frozenset(range(record + 1))),
    "vector": (new_builder("w").type_vector().build(), lambda record: {"p": record}),
    "last": (new_builder("w").type_of(Step).build(), Step),
    "float": (new_builder("w").type_float().build(), float),
    "quantile": (new_builder("w").type_long().combine_function_quantile(1).build(), lambda record: record),
    "sum": (new_builder("w").type_long().combine_function_sum().build(), lambda record: record),
    "count": (new_builder("w").type_long().combine_function_count().build(), lambda record: record),
}


class Typed(OneInputStreamProcessFunction[int, int]):
    """Sends a value for each record."""

    def __init__(self, name: str) -> None:
        self.name = name

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [TYPED[self.name][0]]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        declaration, value_of = TYPED[self.name]
        ctx.non_partitioned_context.watermark_manager.emit_watermark(declaration.new_watermark(value_of(record)))


@pytest.mark.parametrize("senders", [(2, 3), (3, 1), (1, 4)])
@pytest.mark.parametrize("receivers", [(1, 1), (2, 3)])
@pytest.mark.parametrize("name", TYPED)
def test_values_of_every_type_continue_at_another_parallelism(
    tmp_path: Path, name: str, senders: tuple[int, int], receivers: tuple[int, int]
) -> None:
    def program(sending: int, receiving: int) -> Program:
        def build(stream: Any, parallelism: int) -> Any:
            sent = stream.key_by(lambda number: number % 5).process(Typed(name)).with_uid("typed")
            seen = sent.with_parallelism(sending).shuffle().process(Sees()).with_uid("sees").with_parallelism(receiving)
            return seen.shuffle().process(Pass()).with_uid("end").with_parallelism(1)

        return Program(range(60), build)

    before = program(senders[0], receivers[0])
    before.run(stop=30, parallelism=1).savepoint(tmp_path / "a")
    after = program(senders[1], receivers[1])
    after.run(start=tmp_path / "a", stop=59, parallelism=1)
    assert before.results
    assert after.results or (name == "float" and senders[1] == 4)  # one of the four has no key, and holds the others
    if name in ("union", "vector", "quantile"):
        assert all(value >= before.results[0] for value in after.results)  # what was known is not forgotten
    if name == "count":
        assert max(after.results) <= senders[1]
    if name == "sum":
        assert max(after.results) < 60 * senders[1]
