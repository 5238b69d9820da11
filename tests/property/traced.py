"""Process functions of every kind that log their calls, for the random graphs.

The log goes to a file for each subtask, so it is complete on any runtime, even if state is lost. A record is ``(key,
number, name)``. The name has the function that emitted it, the subtask, and a consecutive number.
"""

from __future__ import annotations

import os
from ast import literal_eval
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.watermark import BoolWatermarkDeclaration, Watermark, WatermarkDeclaration, WatermarkHandlingResult

Item: TypeAlias = tuple[str, int, str]
Event: TypeAlias = tuple[Any, ...]
Response: TypeAlias = Literal["pass", "odd", "twice", "count", "first", "rekey", "join", "silent"]
Moment: TypeAlias = Literal["open", "record", "watermark", "end"]


def key_of(item: Item) -> str:
    """The key selector of all random graphs."""
    return item[0]


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a function.

    ``response``: its output for a record. ``emits``: when it emits a watermark of ``declarations[0]``, and of
    ``declarations[1]``. ``polls``: whether it returns POLL. ``dumps``: when it visits all partitions and emits.
    """

    response: Response = "pass"
    emits: tuple[tuple[int, Moment], ...] = ()
    polls: bool = False
    dumps: Literal["never", "watermark", "end"] = "never"


class Responder:
    """The output for consecutive records, for every ``response``. Its fields are the state that must survive."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.counts: Counter[str] = Counter()
        self.sides: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})

    def learn(self, other: Responder) -> None:
        """Take over what ``other`` knows, which is more for its keys and less for others."""
        self.counts |= other.counts
        for own, others in zip(self.sides, other.sides, strict=True):
            for key, numbers in others.items():
                own[key] = max(own.get(key, []), numbers, key=len)

    def respond(self, side: int, key: str, number: int) -> list[tuple[str, int]]:
        """Return the keys and numbers to emit for a record of input ``side``."""
        self.counts[key] += 1
        if self.response == "odd":
            return [(key, number)] * (number % 2)
        if self.response == "twice":
            return [(key, number), (key, number + 1)]
        if self.response == "count":
            return [(key, self.counts[key])]
        if self.response == "first":
            return [(key, number)] * (self.counts[key] == 1)
        if self.response == "rekey":
            return [("abcd"[number % 4], number)]
        if self.response == "join":
            self.sides[side].setdefault(key, []).append(number)
            return [(key, number + other) for other in self.sides[1 - side].get(key, ())]
        return [] if self.response == "silent" else [(key, number)]


class Traced:
    """Common parts of functions of every kind."""

    def __init__(
        self, folder: str, behaviour: Behaviour, declarations: Sequence[WatermarkDeclaration], keyed: bool
    ) -> None:
        self.folder = folder
        self.behaviour = behaviour
        self.declarations = tuple(declarations)
        self.keyed = keyed
        self.responder = Responder(behaviour.response)
        self.subtask = -1
        self.emitted = 0

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return self.declarations

    def redistribute_fields(self, parts: Sequence[Mapping[str, Any]], parallelism: int) -> list[dict[str, Any]]:
        """Give all that was counted to each subtask, of which each uses the part of its keys."""
        responder = Responder(self.behaviour.response)
        for part in (part["responder"] for part in parts if "responder" in part):
            responder.learn(part)
        emitted = max(part.get("emitted", 0) for part in parts)
        return [{"responder": responder, "emitted": emitted, "subtask": index} for index in range(parallelism)]

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.task_info.index_of_this_subtask
        self._note("open")
        self._emit(ctx, "open", 4)

    def close(self) -> None:
        self._note("close")

    def record(self, side: int, item: Item, outputs: Sequence[Any], ctx: Any) -> None:
        """Process a record of a partitioned input."""
        key = ctx.state_manager.current_key if self.keyed else None
        self._note("record", side, item, key)
        for index, (new_key, number) in enumerate(self.responder.respond(side, item[0], item[1])):
            self._collect(outputs, (item[1] + index) % len(outputs), new_key, number)
        self._emit(ctx.non_partitioned_context, "record", item[1])

    def watermark(self, side: int, watermark: Watermark, ctx: Any) -> WatermarkHandlingResult:
        """Process a watermark."""
        self._note("watermark", side, watermark.identifier, watermark.value)
        self._emit(ctx, "watermark", int(watermark.value) + 1)
        if self.behaviour.dumps == "watermark":
            self.dump(ctx)
        return WatermarkHandlingResult.POLL if self.behaviour.polls else WatermarkHandlingResult.PEEK

    def ended(self, side: int, ctx: Any) -> None:
        """Process the end of an input."""
        self._note("end", side)
        self._emit(ctx, "end", 7)
        if self.behaviour.dumps == "end":
            self.dump(ctx)

    def dump(self, ctx: Any) -> None:
        """Emit a record in every partition."""
        self._note("dump")

        def visit(*args: Any) -> None:
            *outputs, partition = args
            self.visit(outputs, partition)

        ctx.apply_to_all_partitions(visit)
        self._note("dumped")

    def visit(self, outputs: Sequence[Any], partition: Any) -> None:
        """Emit a record in one partition."""
        key = partition.state_manager.current_key if self.keyed else "-"
        self._note("visit", key)
        self._collect(outputs, 0, key, self.responder.counts[key] if self.keyed else 0)

    def _collect(self, outputs: Sequence[Any], index: int, key: str, number: int) -> None:
        item = key, number, f"{os.path.basename(self.folder)}.{self.subtask}.{self.emitted}"
        self.emitted += 1
        self._note("collect", index, item)
        outputs[index].collect(item)

    def _emit(self, ctx: Any, moment: Moment, value: int) -> None:
        for number, when in self.behaviour.emits:
            declaration = self.declarations[number]
            if when != moment:
                continue
            if isinstance(declaration, BoolWatermarkDeclaration):
                self._note("emit", declaration.identifier, value % 3 == 0)
                ctx.watermark_manager.emit_watermark(declaration.new_watermark(value % 3 == 0))
            else:
                self._note("emit", declaration.identifier, value)
                ctx.watermark_manager.emit_watermark(declaration.new_watermark(value))

    def _note(self, *event: Any) -> None:
        with open(f"{self.folder}/{self.subtask}", "a", encoding="utf-8") as file:
            file.write(f"{event!r}\n")


def read_notes(folder: Path, subtask: int) -> list[Event]:
    """The log of subtask ``subtask``."""
    file = folder / str(subtask)
    lines: Iterator[str] = iter(file.read_text(encoding="utf-8").splitlines()) if file.exists() else iter(())
    return [literal_eval(line) for line in lines]


class OneInput(Traced, OneInputStreamProcessFunction[Item, Item]):
    """One input, one output."""

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        self.record(0, record, (output,), ctx)

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self.watermark(0, watermark, ctx)

    def end_input(self, ctx: Any) -> None:
        self.ended(0, ctx)


class TwoOutput(Traced, TwoOutputStreamProcessFunction[Item, Item, Item]):
    """One input, two outputs."""

    def process_record(self, record: Item, first_output: Any, second_output: Any, ctx: Any) -> None:
        self.record(0, record, (first_output, second_output), ctx)

    def on_watermark(
        self, watermark: Watermark, first_output: Any, second_output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        return self.watermark(0, watermark, ctx)

    def end_input(self, ctx: Any) -> None:
        self.ended(0, ctx)


class TwoInput(Traced, TwoInputNonBroadcastStreamProcessFunction[Item, Item, Item]):
    """Two inputs."""

    def process_record_from_first_input(self, record: Item, output: Any, ctx: Any) -> None:
        self.record(0, record, (output,), ctx)

    def process_record_from_second_input(self, record: Item, output: Any, ctx: Any) -> None:
        self.record(1, record, (output,), ctx)

    def on_watermark_from_first_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self.watermark(0, watermark, ctx)

    def on_watermark_from_second_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self.watermark(1, watermark, ctx)

    def end_first_input(self, ctx: Any) -> None:
        self.ended(0, ctx)

    def end_second_input(self, ctx: Any) -> None:
        self.ended(1, ctx)


class WithBroadcast(Traced, TwoInputBroadcastStreamProcessFunction[Item, Item, Item]):
    """An input and a broadcast one. Every record of the latter is processed in all partitions."""

    def process_record_from_non_broadcast_input(self, record: Item, output: Any, ctx: Any) -> None:
        self.record(0, record, (output,), ctx)

    def process_record_from_broadcast_input(self, record: Item, ctx: Any) -> None:
        self._note("record", 1, record, None)
        self._emit(ctx, "record", record[1])
        self.dump(ctx)

    def on_watermark_from_non_broadcast_input(
        self, watermark: Watermark, output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        return self.watermark(0, watermark, ctx)

    def on_watermark_from_broadcast_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self.watermark(1, watermark, ctx)

    def end_non_broadcast_input(self, ctx: Any) -> None:
        self.ended(0, ctx)

    def end_broadcast_input(self, ctx: Any) -> None:
        self.ended(1, ctx)
