"""Kills a local job at a chosen step, in this process: before, after or within a call of a connector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dsv2.sinks import SinkBatch


class KilledError(KeyboardInterrupt):
    """The process dies here. No error handling applies, as with Ctrl-C."""


class Kill:
    """Counts the steps of a run, and ends the run at the step ``number``."""

    def __init__(self, number: int) -> None:
        self._number = self._left = number
        self.at = ""
        """The step at which the run was killed; empty if it was not."""

    def __call__(self, step: str) -> None:
        self._left -= 1
        if self._left < 0:
            self.at = self.at or step
            raise KilledError(step)

    def __str__(self) -> str:
        return f"a kill at step {self._number}, {self.at}" if self.at else "a run that was not killed"

    def of_calls(self, owner: type, *methods: str) -> AbstractContextManager[Any]:
        """Let each call of these methods be a step, and each batch of records that they take or return."""
        return _replaced(owner, {name: self._stepped(getattr(owner, name), name) for name in methods})

    def of_source(self, source: type) -> AbstractContextManager[Any]:
        """Let each call of an enumerator and of a reader of ``source`` be a step."""
        names = ("create_enumerator", "create_reader")
        return _replaced(source, {name: self._watched(getattr(source, name)) for name in names})

    def _watched(self, create: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: _Watched(create(*args), self._stepped)

    def _stepped(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            self(f"before {name}")
            result = call(*(self._by_parts(one, name) if isinstance(one, SinkBatch) else one for one in args))
            if isinstance(result, Iterator):
                return self._parts(result, name)
            self(f"after {name}")
            return result

        return called

    def _by_parts(self, batch: SinkBatch[Any], name: str) -> SinkBatch[Any]:
        return replace(batch, batches=self._parts(batch.batches, name))

    def _parts(self, parts: Iterable[Any], name: str) -> Iterator[Any]:
        for part in parts:
            yield part
            self(f"within {name}")


class _Watched:
    """An enumerator or a reader. It is closed as after a failure, since the process lives on."""

    def __init__(self, target: Any, stepped: Callable[[Callable[..., Any], str], Callable[..., Any]]) -> None:
        self._target = target
        self._stepped = stepped

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._stepped(value, name) if callable(value) and name != "close" else value


def _replaced(owner: type, methods: dict[str, Any]) -> AbstractContextManager[Any]:
    replaced: AbstractContextManager[Any] = patch.multiple(owner, **methods)
    return replaced
