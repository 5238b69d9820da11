"""Error policies, and the types of dead letters."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from dsv2 import DeadLetter, ErrorPolicy
from dsv2.model import RecordBatch, RecordPosition
from dsv2.sources import SplitBatch
from dsv2.streams import ConfiguredKeyedStream, ConfiguredStream
from dsv2.testing import OneInputHarness
from tests.typing.given import Given

POLICY = (
    ErrorPolicy()
    .retry(ConnectionError, TimeoutError, times=3, backoff=timedelta(seconds=1))
    .skip(ValueError)
    .fail(KeyError)
    .dead_letter()
    .limit(total=100, per_micro_batch=10)
)


def policies(g: Given) -> None:
    assert_type(POLICY, ErrorPolicy)
    g.env.set_error_policy(POLICY)
    result = g.keyed.process(g.one).with_error_policy(POLICY)
    assert_type(result, ConfiguredStream[bytes])
    assert_type(result.dead_letters(int), ConfiguredStream[DeadLetter[int]])
    kept = g.keyed.process(g.one, g.key_of_bytes).with_error_policy(POLICY)
    assert_type(kept, ConfiguredKeyedStream[str, bytes])
    assert_type(g.non_keyed.process(g.two_out).dead_letters(int), ConfiguredStream[DeadLetter[int]])
    assert_type(g.global_.process(g.one).dead_letters(int), ConfiguredStream[DeadLetter[int]])
    result.dead_letters(int).map(number_of).to_sink(g.int_sink)


def number_of(letter: DeadLetter[int]) -> int:
    return 0 if letter.record is None else letter.record


def harness(g: Given) -> None:
    assert_type(OneInputHarness(g.one, error_policy=POLICY).dead_letters.records[0].error_message, str)


def sources_and_sinks(g: Given) -> None:
    stream = g.env.from_collection([1]).with_error_policy(POLICY)
    assert_type(stream.dead_letters(bytes), ConfiguredStream[DeadLetter[bytes]])
    sink = g.keyed.to_sink(g.int_sink).with_error_policy(POLICY)
    assert_type(sink.dead_letters(int), ConfiguredStream[DeadLetter[int]])
    g.env.execute(skip_records={"orders": [(3, 1042), ("a.txt", 7)], "other": {(0, "16/B3#1")}}, trace_records=True)


def position(letter: DeadLetter[int]) -> str:
    assert_type(letter.position, RecordPosition | None)
    return "" if letter.position is None else f"{letter.position.split}/{letter.position.offset}"


def split_batches() -> None:
    decoded = SplitBatch(["1"], int, offsets=lambda: [7])
    assert_type(decoded, SplitBatch[int])
    batch: RecordBatch[int] = decoded
    assert_type(batch.records[0], int)
