"""Where the processor time of a call goes: replaces functions by ones that note how long they ran by themselves."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ("Stopwatch",)


class Stopwatch:
    """Seconds of processor time per part, so that other load does not count.

    Time spent in a part that is entered within another one counts for the inner one only.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time spent in the block is spent on ``name``."""
        self._turn()
        self._running.append(name)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    @contextmanager
    def watching(self, functions: dict[str, tuple[object, str]]) -> Iterator[None]:
        """Within the block, calls of each function (given as owner and attribute) count for the part of that name."""
        with ExitStack() as stack:
            for name, (owner, attribute) in functions.items():
                original = getattr(owner, attribute)
                setattr(owner, attribute, self._timed(name, original))
                stack.callback(setattr, owner, attribute, original)
            yield

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return timed

    def _turn(self) -> None:
        now = time.process_time()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now
