"""Streams and functions of fixed types, for the modules that only a type checker reads.

Records are ``int`` (main) and ``date`` (other), results ``bytes`` and ``list[int]``, keys ``str``. No two of them are
related, so a wrong one is always an error.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from dsv2 import BroadcastStream, ExecutionEnvironment, GlobalStream, KeyedPartitionStream, NonKeyedPartitionStream
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.sinks import Sink
from dsv2.sources import BaseSource
from dsv2.state import AggregateFunction


class Given:
    env: ExecutionEnvironment
    source: BaseSource[int]
    int_sink: Sink[int]
    bytes_sink: Sink[bytes]

    non_keyed: NonKeyedPartitionStream[int]
    keyed: KeyedPartitionStream[str, int]
    global_: GlobalStream[int]
    broadcast: BroadcastStream[int]
    other_non_keyed: NonKeyedPartitionStream[date]
    other_keyed: KeyedPartitionStream[str, date]
    keyed_by_date: KeyedPartitionStream[date, date]
    other_global: GlobalStream[date]
    other_broadcast: BroadcastStream[date]

    one: OneInputStreamProcessFunction[int, bytes]
    two_out: TwoOutputStreamProcessFunction[int, bytes, list[int]]
    two_in: TwoInputNonBroadcastStreamProcessFunction[int, date, bytes]
    with_side: TwoInputBroadcastStreamProcessFunction[int, date, bytes]

    by_text: Callable[[int], str]
    by_day: Callable[[int], date]
    key_of_bytes: Callable[[bytes], str]
    key_of_list: Callable[[list[int]], str]


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        return first[0] + second[0], first[1] + second[1]
