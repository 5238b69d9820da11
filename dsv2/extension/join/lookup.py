"""The join of a stream with a service or database that is asked for each record (Flink SQL lookup join)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, overload

from dsv2.base.callables import deferred_kind, takes
from dsv2.base.type_variables import IN, OUT, V
from dsv2.checks.arguments import as_choice, as_milliseconds, check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.extension.join.functions import JoinType, JoinTypeChoice
from dsv2.functions import AsyncOneInputStreamProcessFunction, OneInput
from dsv2.model.async_settings import AsyncSettings
from dsv2.model.context import Collector, PartitionedContext
from dsv2.model.resource import Resource

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class LookupCache:
    """The cache of a lookup join, in each worker process. It is not part of the checkpoint.

    Attributes:
        max_keys: The maximum number of keys. The least recently used ones are dropped first.
        ttl: The time for which a result is used.
        missing_keys: Whether keys that were not found are cached as well.

    Raises:
        ConfigurationError: A value is invalid.
    """

    max_keys: int
    ttl: timedelta
    missing_keys: bool = True

    def __post_init__(self) -> None:
        check_whole_number(self.max_keys, "max_keys")
        as_milliseconds(self.ttl, "ttl", at_least=1)


@overload
def lookup_join(
    lookup: Callable[[K], Awaitable[V | None]],
    key: Callable[[IN], K],
    function: Callable[[IN, V], OUT],
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    cache: LookupCache | None = None,
    settings: AsyncSettings | None = None,
) -> OneInput[IN, OUT]: ...
@overload
def lookup_join(
    lookup: Callable[[K], Awaitable[V | None]],
    key: Callable[[IN], K],
    function: Callable[[IN, V | None], OUT],
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    cache: LookupCache | None = None,
    settings: AsyncSettings | None = None,
) -> OneInput[IN, OUT]: ...
def lookup_join(
    lookup: Callable[[K], Awaitable[V | None]],
    key: Callable[[IN], K],
    function: Callable[[IN, Any], OUT],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    cache: LookupCache | None = None,
    settings: AsyncSettings | None = None,
) -> OneInput[IN, OUT]:
    """Join every record with what a service has for its key: ``stream.process(lookup_join(...))``.

    With a cache, a key is looked up once at a time: concurrent records with the same key share the call. The counter
    ``lookup_misses`` counts the calls of ``lookup``; ``lookup_hits`` counts the records that needed none.

    A result has the timestamp of its record.

    Args:
        lookup: A coroutine function that returns the value of a key, or None if there is none.
        key: Returns the key of a record.
        function: Returns the result for a record and its value. For LEFT also called with None.
        join_type: INNER drops records without a value, LEFT does not.
        cache: What is remembered. None: nothing, so that each record calls ``lookup``.
        settings: How many calls are in flight, their timeout and order. None: the defaults.

    Raises:
        ConfigurationError: An argument is invalid.

    Source: Flink SQL lookup join, ``AsyncLookupJoinRunner`` and ``LookupCache``.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    if chosen not in (JoinType.INNER, JoinType.LEFT):
        raise ConfigurationError(f"join_type of lookup_join must be INNER or LEFT, not {chosen}.")
    for what, called, count in (("lookup", lookup, 1), ("key", key, 1), ("function", function, 2)):
        if not takes(called, count):
            given = "(record, value)" if count == 2 else "(key)" if what == "lookup" else "(record)"
            raise ConfigurationError(f"lookup_join: {what} must be callable with {given}, not {called!r}.")
        if what != "lookup" and (kind := deferred_kind(called)) is not None:
            raise ConfigurationError(f"lookup_join: {what} must not be a {kind}. Only lookup is a coroutine function.")
    return _LookupJoin(lookup, key, function, chosen is JoinType.LEFT, cache, settings or AsyncSettings())


class _LookupJoin(AsyncOneInputStreamProcessFunction[IN, OUT], Generic[IN, OUT, K, V]):
    def __init__(
        self,
        lookup: Callable[[K], Awaitable[V | None]],
        key: Callable[[IN], K],
        function: Callable[[IN, Any], OUT],
        keep_all: bool,
        cache: LookupCache | None,
        settings: AsyncSettings,
    ) -> None:
        self.async_settings = settings
        self._lookup = lookup
        self._key = key
        self._function = function
        self._keep_all = keep_all
        self._cache = cache
        self._cached: Resource[_Cached[K, V]] = Resource(_Cached)

    async def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        key = self._key(record)
        if self._cache is None:
            is_hit, value = False, await self._lookup(key)
        else:
            is_hit, value = await self._cached.get().find(key, self._lookup, self._cache)
        ctx.metric_group.counter("lookup_hits" if is_hit else "lookup_misses").inc()
        if value is not None or self._keep_all:
            output.collect(self._function(record, value))


class _Cached(Generic[K, V]):
    """The results that a process remembers."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V | None, float]] = {}  # and when they expire; the least recently used first
        self._pending: dict[tuple[asyncio.AbstractEventLoop, K], asyncio.Task[V | None]] = {}

    async def find(
        self, key: K, lookup: Callable[[K], Awaitable[V | None]], cache: LookupCache
    ) -> tuple[bool, V | None]:
        """Return whether no call was needed, and the value of ``key``."""
        loop = asyncio.get_running_loop()
        known = self._values.pop(key, None)
        if known is not None and loop.time() < known[1]:
            self._values[key] = known
            return True, known[0]
        pending = self._pending.get((loop, key))
        if pending is not None:
            return True, await asyncio.shield(pending)
        # The call does not belong to this record: others wait for it, also if this record is cancelled.
        task = loop.create_task(self._look_up(key, lookup, cache), context=Context())
        self._pending[loop, key] = task
        task.add_done_callback(lambda _: self._pending.pop((loop, key)))
        return False, await asyncio.shield(task)

    async def _look_up(self, key: K, lookup: Callable[[K], Awaitable[V | None]], cache: LookupCache) -> V | None:
        value = await lookup(key)
        if value is not None or cache.missing_keys:
            self._values[key] = value, asyncio.get_running_loop().time() + cache.ttl.total_seconds()
            while len(self._values) > cache.max_keys:
                del self._values[next(iter(self._values))]
        return value
