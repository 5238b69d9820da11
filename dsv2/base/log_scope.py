"""The job, operator and subtask of the current thread or asyncio task, for log records.

It is set once for each call of a subtask, not for each operator of a chain. The operator is looked up when something is
logged: it is the one whose function, context or runtime object is found innermost on the stack.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import FrameType

from dsv2.base.type_variables import T


@dataclass(frozen=True, slots=True)
class LogScope:
    """The job, operator and subtask that run.

    Attributes:
        job: The name of the job.
        operator: The uid of the operator, or of the first operator of its chain. None: no operator.
        subtask: The index of the subtask. None: no subtask.
        owners: Returns the uid of the operator of each object that only one operator of the chain uses, by ``id``.
            None: there is only one operator.
    """

    job: str | None = None
    operator: str | None = None
    subtask: int | None = None
    owners: Callable[[], Mapping[int, str]] | None = None


_SCOPE: ContextVar[LogScope] = ContextVar("dsv2_log_scope", default=LogScope())  # noqa: B039 - it is immutable


@contextmanager
def in_scope(scope: LogScope) -> Iterator[None]:
    """Run the block in ``scope``."""
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextmanager
def in_operator(uid: str, subtask: int | None = None) -> Iterator[None]:
    """Run the block as the operator ``uid`` of the job that runs."""
    with in_scope(LogScope(_SCOPE.get().job, uid, subtask)):
        yield


def in_scope_by_step(scope: LogScope, steps: Generator[T, None, None]) -> Generator[T, None, None]:
    """Yield the items of ``steps``. Each is computed in ``scope``; the code that uses it is not."""
    try:
        while True:
            with in_scope(scope):
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step
    finally:
        with in_scope(scope):
            steps.close()


def current_scope() -> LogScope:
    """Return what runs in this thread."""
    scope = _SCOPE.get()
    if scope.owners is None:
        return scope
    owners = scope.owners()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            if (uid := owners.get(id(value))) is not None:
                return replace(scope, operator=uid)
        frame = frame.f_back
    return scope
