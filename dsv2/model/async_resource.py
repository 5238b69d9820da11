"""Clients for async functions, which each worker process opens once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, final

from dsv2.base.callables import takes
from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError, ResourceError
from dsv2.model.resource import Resource

if TYPE_CHECKING:
    import asyncio  # otherwise imported when it is used, because that takes long


_Values: TypeAlias = "dict[asyncio.AbstractEventLoop, asyncio.Task[Any]]"


@final
class AsyncResource(Generic[T]):
    """A value that async functions use and that coroutines open and close, such as the session of an HTTP client.

    It has the life of a ``Resource``: the first ``get`` opens it, and all subtasks and micro-batches of a worker
    process share it. It belongs to the event loop of the process, so only async functions can use it.

    Args:
        open: A coroutine function without parameters that returns the value. It is pickled.
        close: A coroutine function that closes the value, its only argument. None: there is nothing to close.

    Raises:
        ConfigurationError: ``open`` or ``close`` cannot be called with these arguments.
    """

    def __init__(
        self, open: Callable[[], Awaitable[T]], *, close: Callable[[T], Awaitable[object]] | None = None
    ) -> None:
        for function, count, parameter in ((open, 0, "open"), (close, 1, "close")):
            if function is not None and not takes(function, count):
                given = "(value)" if count else "()"
                raise ConfigurationError(
                    f"AsyncResource: {parameter} must be a coroutine function that accepts {given}, not {function!r}."
                )
        self._open = open
        self._values: Resource[_Values] = Resource(dict, close=partial(_close_all, close))

    async def get(self) -> T:
        """Return the value. The first call in a process opens it; concurrent calls wait for that.

        Raises:
            ResourceError: ``open`` raised an exception, which is the cause.
        """
        import asyncio

        values, loop = self._values.get(), asyncio.get_running_loop()
        opening = values.get(loop)
        if opening is None:
            # Not in the context of the record that happens to be the first, and not cancelled with it.
            opening = values[loop] = loop.create_task(self._opened(), context=Context())
        try:
            value: T = await asyncio.shield(opening)
        except ResourceError:
            if values.get(loop) is opening:
                del values[loop]  # the next call tries again
            raise
        return value

    async def _opened(self) -> T:
        try:
            opening: object = self._open()
            if not isinstance(opening, Awaitable):
                raise TypeError(f"open returned {opening!r:.200}, which cannot be awaited. Use a Resource.")
            value: T = await opening
        except Exception as error:
            failure = ResourceError(f"{self} cannot be opened: {type(error).__qualname__}: {error}")
            raise failure.with_traceback(error.__traceback__) from error
        return value

    def __repr__(self) -> str:
        return f"AsyncResource({getattr(self._open, '__qualname__', self._open)})"


def _close_all(close: Callable[[Any], Awaitable[object]] | None, values: _Values) -> None:
    from dsv2.base.event_loop import outside_of_loops

    for loop, opening in values.items():
        if loop.is_closed() or not opening.done() or opening.cancelled() or opening.exception() is not None:
            continue
        if close is not None:
            outside_of_loops(partial(loop.run_until_complete, _closing(close, opening.result())), loop)


async def _closing(close: Callable[[Any], Awaitable[object]], value: Any) -> None:
    await close(value)
