"""The definition of a failing program, and the pipelines with which such programs begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension
from tests.conformance.functions import NUMBERS, mod3


@dataclass(frozen=True)
class Failure:
    """A pipeline of parallelism 2 that fails in one place, on a line that ends in ``# here``."""

    name: str
    build: Callable[[ExecutionEnvironment], Any]
    fields: dict[str, str | None] = field(default_factory=dict)
    operator: str = "Process (uid 'bad')"
    callback: str = "process_record"
    subtask: int | None = 1
    """None stands for the subtask that owns the key or, if the key is invalid, that has the record."""


def numbers(env: ExecutionEnvironment) -> Any:
    """0 to 11, distributed over two subtasks: 7 is in subtask 1."""
    return env.from_collection(NUMBERS)


def stamped(env: ExecutionEnvironment) -> Any:
    """Numbers by key, each its own timestamp."""
    builder: Any = EventTimeExtension.new_watermark_generator_builder(int).per_event_watermark()
    return numbers(env).process(builder.build_as_process_function()).key_by(mod3)


def by3(env: ExecutionEnvironment, function: Any = None) -> Any:
    """Numbers by key, after ``function`` if there is one."""
    stream = numbers(env)
    return (stream if function is None else stream.process(function)).key_by(mod3)
