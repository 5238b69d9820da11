"""The definition of a failing program, and the pipelines with which such programs begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.watermark import new_builder
from tests.conformance.functions import NUMBERS, Pass, mod3
from tests.conformance.timing import per_event

MESSAGE = "seven – ünïcode\nand a second line"
ANY = "any record"
SIGNAL = new_builder("signal").type_long().build()


@dataclass(frozen=True)
class Failure:
    """A pipeline of parallelism 2 that fails in its last function, on a line that ends in ``# here``.

    Attributes:
        kind: The name of the function, without its uid.
        owner: The key in whose subtask it fails. None: that of ``key``, or subtask 1.
    """

    name: str
    build: Callable[[ExecutionEnvironment], Any]
    cause: str = "ValueError"
    kind: str = "Process"
    callback: str = "process_record"
    record: str | None = "7"
    key: str | None = None
    owner: int | None = None


def numbers(env: ExecutionEnvironment) -> Any:
    """0 to 11, distributed over two subtasks: 7 is in subtask 1."""
    return env.from_collection(NUMBERS)


def stamped(env: ExecutionEnvironment) -> Any:
    """Numbers by key, each its own timestamp."""
    return numbers(env).process(per_event(int)).key_by(mod3)


def by3(env: ExecutionEnvironment, function: Any = None) -> Any:
    """Numbers by key, after ``function`` if there is one."""
    stream = numbers(env)
    return (stream if function is None else stream.process(function)).key_by(mod3)


def read(stream: Any) -> Any:
    """The stream, which another function reads."""
    stream.process(Pass())
    return stream


def signal(number: int, output: Any, ctx: Any) -> None:
    """Emits a watermark with one record."""
    if number == 7:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(SIGNAL.new_watermark(1))
