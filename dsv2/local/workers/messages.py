"""The messages between the process of a job and its worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, NamedTuple

from dsv2.graph import Plan
from dsv2.local.page_log import LogPlace
from dsv2.local.task_group import Place
from dsv2.runtime.serde.type_registry import TypeRegistry


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of the worker processes of a run.

    Attributes:
        count: Their number.
        checks: Whether frames are serialized, and records are compared.
        durable: Whether their logs are forced to the disk.
        memory_budget: The bytes of memory for decoded pages in one of them (``PageBudget``).
        logs: Their logs. Empty: there is no checkpoint.
        lock: The file that locks the checkpoint. None: there is none.
    """

    count: int
    checks: bool
    durable: bool
    memory_budget: int
    logs: Sequence[LogPlace] = ()
    lock: int | None = None


@dataclass(frozen=True)
class SentJob:
    """The job of worker processes.

    Attributes:
        plan: The plan, without the sinks that workers do not write to.
        registry: The data classes of the job.
        settings: The settings.
        by_system_clock: Whether the job uses the system clock. Otherwise each request has the time.
        log_level: The least level of log records.
    """

    plan: Plan
    registry: TypeRegistry
    settings: WorkerSettings
    by_system_clock: bool
    log_level: int


class Request(NamedTuple):
    """A call of a method of ``Worker``.

    Attributes:
        method: The method.
        args: Its arguments.
        now_ms: The processing time.
        clock_ms: The time of the job's clock.
    """

    method: str
    args: tuple[Any, ...]
    now_ms: int
    clock_ms: int


class Failure(NamedTuple):
    """The reply to a request that failed. ``text``: The error (``carried_errors``)."""

    text: str


class SentFrame(NamedTuple):
    """A frame, with its content as bytes."""

    operator: int
    subtask: int
    channel: int
    content: bytes


class ReaderOrders(NamedTuple):
    """Calls of the methods of a reader."""

    place: Place
    calls: list[methodcaller]


@dataclass(frozen=True)
class LevelOrder:
    """One level of a micro-batch.

    Attributes:
        level: The level; 0: the sources.
        frames: Frames from other workers.
        orders: Orders for the readers.
        ends: The micro-batch that ends with this level, whose transaction is then written. None: a level follows.
    """

    level: int
    frames: Sequence[SentFrame] = ()
    orders: Sequence[ReaderOrders] = ()
    ends: int | None = None


@dataclass(frozen=True)
class Emitted:
    """Frames that a worker has emitted.

    Attributes:
        frames: Frames by the worker that receives them.
        to_sinks: Frames for sinks. Their content is that of ``SinkOutput``.
    """

    frames: dict[int, list[SentFrame]] = field(default_factory=dict)
    to_sinks: list[SentFrame] = field(default_factory=list)


class Reply(NamedTuple):
    """The reply to a request: the result of the method, and what the worker has emitted meanwhile."""

    result: Any
    emitted: Emitted


def worker_of(subtask: int, count: int) -> int:
    """Return the worker that runs the subtasks with an index. ``count``: The number of workers."""
    return subtask % count
