"""Fixtures for plans (one environment, streams of every kind, a function of every kind), and for resources."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)


class One(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Declaring(One):
    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def declare_watermarks(self) -> Any:
        return self.declared


class TwoOut(TwoOutputStreamProcessFunction[Any, Any, Any]):
    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None: ...


class TwoIn(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


class WithSide(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_broadcast_input(self, record: Any, ctx: Any) -> None: ...


class Streams:
    """Streams over two sources, ``main`` and ``side``. The keyed ones use ``str`` as key selector."""

    def __init__(self, env: ExecutionEnvironment) -> None:
        self.env = env
        main, side = env.from_collection([1], "main"), env.from_collection([1], "side")
        self.non_keyed, self.other_non_keyed = main, side
        self.keyed, self.other_keyed = main.key_by(str), side.key_by(str)
        self.global_, self.other_global = main.global_(), side.global_()
        self.broadcast = side.broadcast()
        self.one, self.two_out, self.two_in, self.with_side = One(), TwoOut(), TwoIn(), WithSide()
        self.declaring = Declaring


@pytest.fixture(scope="module")
def no_other_harnesses() -> None:
    """Harnesses of other tests that were not closed would keep resources open."""
    gc.collect()


@pytest.fixture
def env() -> ExecutionEnvironment:
    environment = ExecutionEnvironment.get_instance(runtime="local")
    environment.set_parallelism(2)
    return environment


@pytest.fixture
def s(env: ExecutionEnvironment) -> Any:
    """Typed as Any because half of the calls are mistakes that a type checker would refuse."""
    return Streams(env)
