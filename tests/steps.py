"""Kills a local job at a chosen step, in this process: before or after a change of a file, or a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.local.segment_files import SegmentFiles


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
def steps_of(step: Callable[[], None], *methods: tuple[object, str]) -> Iterator[None]:
    """Let each call of these methods, or functions of modules, be a step: the process may die before or after it."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in methods:
            method = getattr(owner, name)

            def called(*args: Any, method: Any = method, **options: Any) -> Any:
                step()
                result = method(*args, **options)
                step()
                return result

            patch.setattr(owner, name, called)
        yield


def steps_of_files(step: Callable[[], None]) -> AbstractContextManager[None]:
    """Let each change of a file be a step."""
    of_folders = ((LocalFolder, name) for name in ("write", "delete", "move", "remove"))
    return steps_of(step, *of_folders, *((SegmentFiles, name) for name in ("begin", "append", "delete")))
