"""Measures the CPU time of the parts of a call, by replacing functions with measured ones."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ("Stopwatch",)


class Stopwatch:
    """Measures CPU time per part, in seconds, which excludes other load of the machine.

    Time in a nested part counts for the nested part only.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of the block to the part ``name``."""
        self._turn()
        self._running.append(name)
        try:
            yield
        finally:
            self._turn()
            self._running.pop()

    @contextmanager
    def watching(self, functions: dict[str, tuple[object, str]]) -> Iterator[None]:
        """During the block, add the time of each function (given as owner and attribute) to the part of that name."""
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
