"""Models, clients and other values that a worker process opens once and that are never part of a checkpoint."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Any, Generic, cast, final
from uuid import uuid4
from weakref import WeakValueDictionary

from dsv2.base.callables import deferred_kind, takes
from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError, Dsv2Warning, ResourceError

_LOG = logging.getLogger(__name__)


@final
class Resource(Generic[T]):
    """A value that each worker process opens once, such as a model or the client of a service.

    Create it as a class attribute, as a field in the constructor of a function, or as a global variable. All subtasks
    and micro-batches of a process that use the same ``Resource`` share its value. Subtasks of a process take turns, so
    the value is used by one of them at a time (of one job).

    The value is opened by the first ``get``. On Spark it is closed when its process has not used it for 45 seconds,
    fails, or ends; locally when the job ends. ``get`` then opens it again. It is not closed if the process is killed.
    The value is never pickled nor part of a checkpoint: a function is sent to the workers with ``open``.

    Args:
        open: Returns the value, for example ``load_model`` or ``partial(load_model, path)``. It is pickled.
        close: Called with the value to close it. None: there is nothing to close.

    Raises:
        ConfigurationError: ``open`` or ``close`` cannot be called with these arguments, or is a coroutine function.
    """

    def __init__(self, open: Callable[[], T], *, close: Callable[[T], object] | None = None) -> None:
        self._set(uuid4().hex, open, close)
        _check(open, 0, "open", "()")
        if close is not None:
            _check(close, 1, "close", "(value)")

    def get(self) -> T:
        """Return the value, which the first call in a process opens.

        Raises:
            ResourceError: ``open`` raised an exception, which is the cause.
        """
        if not self._is_open:
            self._do_open()
        self._was_used = True
        return self._value

    def __repr__(self) -> str:
        return f"Resource({getattr(self._open, '__qualname__', self._open)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (self._key, self._open, self._close)

    def _set(self, key: str, open: Callable[[], T], close: Callable[[T], object] | None) -> None:
        self._key = key
        self._open = open
        self._close = close
        self._value: T = cast(Any, None)
        self._is_open = False
        self._was_used = False
        self._lock = threading.RLock()  # not a plain lock: the signal handler of a worker closes resources
        _SHARED[key] = self

    def _do_open(self) -> None:
        with self._lock:
            if self._is_open:
                return
            try:
                self._value = self._open()
            except Exception as error:
                failure = ResourceError(f"{self} cannot be opened: {type(error).__qualname__}: {error}")
                raise failure.with_traceback(error.__traceback__) from error  # shows the frames of ``open``
            self._is_open = True
            _POOL.opened(self)

    def _do_close(self) -> None:
        with self._lock:
            value, self._value, was_open, self._is_open = self._value, cast(Any, None), self._is_open, False
        if was_open and self._close is not None:
            try:
                self._close(value)
            except Exception:
                _LOG.exception("%s could not be closed", self)


_MANY = 20


def _code_of(resource: Resource[Any]) -> object:
    """Return the code that opens a resource. It is the same for functions that are defined repeatedly."""
    return getattr(resource._open, "__code__", resource._open)


class _Pool:
    """The open resources of this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[Resource[Any], float] = {}  # when they were last used, in the order in which they were opened
        self._users = 0
        self._timer: threading.Timer | None = None

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def opened(self, resource: Resource[Any]) -> None:
        with self._lock:
            self._open[resource] = inf
            if len(self._open) % _MANY == 0:
                self._warn_of_copies(resource)

    def _warn_of_copies(self, resource: Resource[Any]) -> None:
        code = _code_of(resource)
        copies = sum(_code_of(other) is code for other in self._open)
        if _MANY <= copies < 2 * _MANY:  # once
            warnings.warn(
                f"{copies} resources with the same function are open: {resource}. Create the Resource once, as a class "
                f"attribute, a field or a global variable, not for each record.",
                Dsv2Warning,
                stacklevel=2,
            )

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def leave(self, keep_seconds: float) -> None:
        with self._lock:
            self._users -= 1
            if self._users or not self._open:
                return
            now = monotonic()
            for resource in self._open:
                if resource._was_used:
                    self._open[resource] = now
                    resource._was_used = False
        self._close_unused_since(now - keep_seconds)
        if self._open:
            self._timer = threading.Timer(keep_seconds, self._on_timer)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        self._close_unused_since(inf)

    def forget(self) -> None:
        """Forget the resources of the parent process, whose clients and threads a forked process cannot use."""
        self._reset()
        for resource in list(_SHARED.values()):
            resource._set(resource._key, resource._open, resource._close)

    def _on_timer(self) -> None:
        with self._lock:
            if self._users:  # a task has begun in the meantime
                return
        self.close()

    def _close_unused_since(self, time: float) -> None:
        """Close resources, the last one first, because it may use earlier ones."""
        with self._lock:
            unused = [resource for resource, used in self._open.items() if used <= time]
            for resource in unused:
                del self._open[resource]
        for resource in reversed(unused):
            resource._do_close()


_SHARED: WeakValueDictionary[str, Resource[Any]] = WeakValueDictionary()
_POOL = _Pool()
atexit.register(_POOL.close)
os.register_at_fork(after_in_child=_POOL.forget)


def any_open() -> bool:
    """Return whether a resource is open in this process."""
    return _POOL.any_open


def close_resources() -> None:
    """Close all resources of this process."""
    _POOL.close()


@contextmanager
def resources_in_use(keep: timedelta = timedelta(0)) -> Iterator[None]:
    """Wrap code that may use resources. For runtimes.

    When no such block of the process runs any more, resources are closed that have not been used for the time
    ``keep``; all of them if the block failed.
    """
    _POOL.enter()
    seconds = 0.0
    try:
        yield
        seconds = keep.total_seconds()
    finally:
        _POOL.leave(seconds)


def _shared(key: str, open: Callable[[], T], close: Callable[[T], object] | None) -> Resource[T]:
    """Unpickle a resource, as the one that this process has already."""
    resource = _SHARED.get(key)
    if resource is None:
        resource = Resource.__new__(Resource)
        resource._set(key, open, close)
    return resource


def _check(function: object, count: int, parameter: str, arguments: str) -> None:
    if not takes(function, count):
        raise ConfigurationError(f"Resource: {parameter} must be callable with {arguments}, not {function!r}.")
    if (kind := deferred_kind(function)) is not None:
        raise ConfigurationError(
            f"Resource: {parameter} is a {kind} function, which a call does not run: {function!r}."
        )
