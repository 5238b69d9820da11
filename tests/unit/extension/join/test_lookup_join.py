"""Lookup joins: inner and left, the cache, shared calls, and their counters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.errors import ConfigurationError
from dsv2.extension.join import JoinType, LookupCache, lookup_join
from dsv2.local import LocalRuntime
from dsv2.model import AsyncSettings
from dsv2.testing import OneInputHarness, StampedRecord
from tests.durations import ms

CALLS: list[str] = []
NAMES = {"a": "Ada", "b": "Bob"}


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


async def name_of(key: str) -> str | None:
    CALLS.append(key)
    await asyncio.sleep(0.01)
    if key == "fails" and len(CALLS) < 3:
        raise ConnectionError
    return NAMES.get(key)


def first(record: str) -> str:
    return record.split()[0]


def greet(record: str, name: str | None) -> str:
    return f"{record}: {name}"


def harness_of(*, cache: LookupCache | None = None, left: bool = True, **options: Any) -> OneInputHarness[str, str]:
    settings = options.pop("settings", None)
    if left:
        joined = lookup_join(name_of, first, greet, "left", cache=cache, settings=settings)
    else:
        joined = lookup_join(name_of, first, greet, cache=cache, settings=settings)
    return OneInputHarness(joined, **options)


CACHE = LookupCache(max_keys=2, ttl=ms(100))


def test_inner_and_left() -> None:
    left, inner = harness_of(), harness_of(left=False)
    for harness in (left, inner):
        harness.input.push("b 1", "c 2", "a 3", timestamp=5)
    assert left.output.elements == [
        StampedRecord("b 1: Bob", 5),
        StampedRecord("c 2: None", 5),
        StampedRecord("a 3: Ada", 5),
    ]
    assert inner.output.records == ["b 1: Bob", "a 3: Ada"]
    assert left.progress.counters == {"lookup_misses": 3}


def test_records_with_the_same_key_share_a_call() -> None:
    harness = harness_of(cache=CACHE)
    harness.input.push("a 1", "a 2", "b 3", "a 4")
    assert harness.output.records == ["a 1: Ada", "a 2: Ada", "b 3: Bob", "a 4: Ada"]
    assert CALLS == ["a", "b"]
    assert harness.progress.counters == {"lookup_misses": 2, "lookup_hits": 2}


def test_results_expire() -> None:
    harness = harness_of(cache=CACHE)
    harness.input.push("a 1", "c 2")
    harness.advance_clock(ms(99))
    harness.input.push("a 3", "c 4")
    harness.advance_clock(ms(1))
    harness.input.push("a 5", "c 6")
    assert CALLS == ["a", "c", "a", "c"]


def test_least_recently_used_keys_are_forgotten() -> None:
    harness = harness_of(cache=CACHE)
    for record in ("a", "b", "a", "c", "a", "b"):
        harness.input.push(record)
    assert CALLS == ["a", "b", "c", "b"]


def test_missing_keys_may_be_looked_up_again() -> None:
    harness = harness_of(cache=LookupCache(max_keys=9, ttl=ms(100), missing_keys=False))
    for record in ("c", "a", "c", "a"):
        harness.input.push(record)
    assert CALLS == ["c", "a", "c"]


def test_failed_calls_are_repeated_by_the_error_policy() -> None:
    policy = ErrorPolicy().retry(ConnectionError, times=2, backoff=ms(5))
    harness = harness_of(cache=CACHE, error_policy=policy)
    harness.input.push("fails 1", "fails 2")
    assert harness.output.records == ["fails 1: None", "fails 2: None"]
    assert CALLS == ["fails"] * 3


def test_timeout_of_one_record_does_not_cancel_the_call_of_others() -> None:
    policy = ErrorPolicy().skip(TimeoutError)
    settings = AsyncSettings(timeout=ms(5))
    harness = harness_of(cache=CACHE, settings=settings, error_policy=policy)
    harness.input.push("a 1")
    harness.advance_clock(ms(10))
    harness.input.push("a 2")
    assert harness.output.records == ["a 2: Ada"]
    assert CALLS == ["a"]


def test_cache_outlives_micro_batches() -> None:
    sink = CollectSink[str]()
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(2,)))
    joined = lookup_join(name_of, first, greet, cache=LookupCache(max_keys=9, ttl=ms(60_000)))
    env.from_collection(["a", "b"] * 3).process(joined).to_sink(sink)
    env.execute()
    assert len(sink.results) == 6
    assert CALLS == ["a", "b"]


def test_invalid_arguments() -> None:
    lookup: Any = lookup_join
    with pytest.raises(ConfigurationError, match="must be INNER or LEFT"):
        lookup(name_of, first, greet, JoinType.FULL)
    with pytest.raises(ConfigurationError, match=r"function must be callable with \(record, value\)"):
        lookup(name_of, first, first)
    with pytest.raises(ConfigurationError, match="key must not be a coroutine"):
        lookup(name_of, name_of, greet)
    with pytest.raises(ConfigurationError, match="max_keys"):
        LookupCache(max_keys=0, ttl=ms(1))
    with pytest.raises(ConfigurationError, match="ttl must be at least 1 ms"):
        LookupCache(max_keys=1, ttl=ms(0))
