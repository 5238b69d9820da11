"""The order in which an async operator emits the results of its calls, and forwards watermarks between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

Emissions: TypeAlias = list[tuple[Any, ...]]
"""The emissions of a call: functions with their arguments."""


class Segment:
    """Calls whose results are emitted as they complete, before anything that follows. See ``EmissionQueue``."""

    __slots__ = ("action", "is_last", "pending", "results")

    def __init__(self, action: Callable[[], object] | None = None) -> None:
        self.pending = 0
        self.results: deque[Emissions] = deque()
        self.is_last = True  # whether further calls may join it
        self.action = action


class EmissionQueue:
    """A queue of segments (as Flink's ``UnorderedStreamElementQueue``).

    In unordered mode, a segment contains the calls between two watermarks. In ordered mode, it contains one call.
    """

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[Segment] = deque()
        self._count = 0

    def __len__(self) -> int:
        """The number of calls and watermarks that wait."""
        return self._count

    def add(self) -> Segment:
        """Add a call. Returns its segment, for ``complete``."""
        self._count += 1
        if not self._segments or not self._segments[-1].is_last:
            self._segments.append(Segment())
        segment = self._segments[-1]
        segment.is_last = not self._ordered
        segment.pending += 1
        return segment

    def complete(self, segment: Segment, result: Emissions) -> None:
        """Let ``release`` emit the result of a call."""
        segment.pending -= 1
        segment.results.append(result)

    def then(self, action: Callable[[], object]) -> None:
        """Let ``release`` call ``action`` after everything before it was emitted."""
        self._count += 1
        if self._segments:
            self._segments[-1].is_last = False
        last = Segment(action)
        last.is_last = False
        self._segments.append(last)

    def release(self, emit: Callable[[Emissions], None]) -> None:
        """Call ``emit`` for each result, and the actions, as far as their turn has come."""
        while self._segments:
            head = self._segments[0]
            while head.results:
                self._count -= 1
                emit(head.results.popleft())
            if head.pending or head.is_last:
                return
            self._segments.popleft()
            if head.action is not None:
                self._count -= 1
                head.action()

    def clear(self) -> None:
        """Forget everything."""
        self._segments.clear()
        self._count = 0
