"""Kills a local job at a chosen step, in this process: before or after a change of a file, or where the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dsv2.folders import LocalFolder

__all__ = ("KilledError", "Steps", "steps_of_files")


class KilledError(KeyboardInterrupt):
    """The process dies here. No error handling applies, as with Ctrl-C."""


class Steps:
    """Counts the steps of a run that another process could see, and kills the run at one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError


@contextmanager
def steps_of_files(step: Callable[[], None]) -> Iterator[None]:
    """Let each change of a file be a step: the process may die before or after it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "delete", "move", "remove"):
            change = getattr(LocalFolder, name)

            def changed(self: LocalFolder, *args: Any, change: Any = change) -> Any:
                step()
                result = change(self, *args)
                step()
                return result

            patch.setattr(LocalFolder, name, changed)
        yield
