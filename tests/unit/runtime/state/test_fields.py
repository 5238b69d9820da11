"""Fields of a function as state: changed fields are kept, the others follow the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from dsv2.errors import SerializationError
from dsv2.functions import MapFunction, OneInputStreamProcessFunction
from dsv2.runtime.report.metrics import DefaultCounter, DefaultMetricGroup
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.fields import FunctionFields
from dsv2.sinks import CollectSink
from tests.support import local_environment, operator_named


class Function(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Detector(Function):
    def __init__(self, threshold: Any = 100) -> None:
        self.threshold = threshold
        self.times: dict[str, list[int]] = {}
        self.newest = -1


class Watched:
    """A function as the runtime holds it: created, perhaps restored, used and serialized."""

    def __init__(self, function: Any, state: bytes | None = None, classes: Sequence[type] = ()) -> None:
        env = local_environment()
        env.from_collection([1]).process(function).with_uid("f").to_sink(CollectSink())
        operator = operator_named(env.build_plan(), "f")
        self.function = function
        self.codec = Codec(TypeRegistry([Point, *classes]))
        self.fields = FunctionFields(
            function, operator, self.codec, {DefaultCounter.reference_kind: DefaultMetricGroup().counter}
        )
        if state is not None:
            self.fields.restore(state)

    def snapshot(self) -> bytes:
        fields = self.fields.snapshot()
        try:
            return self.codec.dumps(fields.value)
        except SerializationError:
            self.fields.name_unserializable()
            raise

    def kept(self) -> Any:
        return self.codec.loads(self.snapshot(), "test")

    def restarted(self, function: Any) -> Any:
        """``function`` after the program was restarted with it."""
        return Watched(function, self.snapshot()).function


def test_only_changed_fields_are_kept() -> None:
    watched = Watched(Detector())
    assert watched.kept() == ({}, [])
    watched.function.newest = 7
    assert watched.kept() == ({"newest": 7}, [])


def test_change_within_a_field_is_detected() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    assert watched.kept() == ({"times": {"a": [1]}}, [])
    watched.function.times["a"].append(2)
    assert watched.restarted(Detector()).times == {"a": [1, 2]}


def test_changed_constructor_argument_counts_after_restart() -> None:
    watched = Watched(Detector(threshold=100))
    watched.function.newest = 7
    assert vars(watched.restarted(Detector(threshold=5))) == {"threshold": 5, "times": {}, "newest": 7}


def test_field_that_changed_once_stays_state() -> None:
    """Even with its initial value: the program may start with another one."""
    first = Watched(Detector(threshold=100))
    first.function.threshold = 50
    second = Watched(Detector(threshold=100), first.snapshot())
    second.function.threshold = 100
    third = Watched(Detector(threshold=5), second.snapshot())
    assert third.function.threshold == 100
    assert third.kept() == ({"threshold": 100}, [])


def test_equal_value_is_no_change() -> None:
    watched = Watched(Detector(threshold=[1, 2]))
    watched.function.threshold = [1, 2]
    watched.function.newest = -1
    assert watched.kept() == ({}, [])


def test_encoding_other_values_does_not_mark_fields() -> None:
    """A local class changes how the codec encodes other classes. A bound method cannot be read back."""

    class Nameless:
        pass

    watched = Watched(MapFunction(Point(1).__eq__), classes=[Nameless])
    watched.codec.dumps(Nameless)
    assert watched.kept() == ({}, [])


def test_new_and_removed_fields() -> None:
    watched = Watched(Detector())
    watched.function.extra = "new"
    del watched.function.newest
    assert watched.kept() == ({"extra": "new"}, ["newest"])
    again = watched.restarted(Detector())
    assert again.extra == "new"
    assert not hasattr(again, "newest")


def test_removed_field_may_be_missing_in_the_program() -> None:
    watched = Watched(Detector())
    del watched.function.newest
    assert vars(watched.restarted(Function())) == {}


def test_shared_objects_stay_shared() -> None:
    watched = Watched(Detector())
    watched.function.times = {"a": []}
    watched.function.current = watched.function.times["a"]
    again = watched.restarted(Detector())
    assert again.current is again.times["a"]


def test_snapshot_is_independent_of_the_function() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    again = watched.restarted(Detector())
    watched.function.times["a"].append(2)
    assert again.times == {"a": [1]}


@pytest.mark.parametrize("configuration", [lambda number: number + 1, threading.Lock(), print, Detector])
def test_unpicklable_configuration_comes_from_the_program(configuration: Any) -> None:
    watched = Watched(Detector(threshold=configuration))
    assert watched.kept() == ({}, [])
    assert watched.restarted(Detector(threshold=5)).threshold == 5


WAY_OUT = (
    " Fields of a function are part of its state: store plain values in them. Hold a model or a client in a "
    "dsv2.Resource. Or define __getstate__ (without the field) and __setstate__ (which recreates it)."
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (threading.Lock(), "_thread.lock is not a data class: _thread.lock is written in C. Store plain values"),
        ({"a": [lambda: None]}, "builtins.function is not a data class"),
        (print, "builtins.builtin_function_or_method is not a data class"),
        ([threading.Thread], "threading.Thread is not a data class"),
    ],
    ids=["lock", "lambda", "function", "foreign class"],
)
@pytest.mark.parametrize("name", ["newest", "brand_new"])
def test_unserializable_new_value_is_named_with_a_remedy(name: str, value: Any, reason: str) -> None:
    """It fails when it is written, not when it is read."""
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    setattr(watched.function, name, value)
    with pytest.raises(SerializationError) as caught:
        watched.snapshot()
    message = str(caught.value)
    assert message.startswith(f"Process (uid 'f'), defined at {__file__}:")
    assert f": field {name!r} ({type(value).__qualname__}) cannot be checkpointed. " in message
    assert reason in message
    assert message.endswith(WAY_OUT)


def test_field_that_becomes_unserializable_is_named() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    watched.function.newest = 7
    watched.snapshot()
    watched.function.times["b"] = threading.Lock()
    with pytest.raises(SerializationError, match=r"field 'times' \(dict\) cannot be checkpointed"):
        watched.snapshot()


class Counting(Function):
    """Leaves out what cannot be pickled, and creates it again."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()

    def __getstate__(self) -> Any:
        return {"count": self.count}

    def __setstate__(self, state: Any) -> None:
        self.count = state["count"]
        self.lock = threading.Lock()


class WithoutSetstate(Function):
    def __init__(self) -> None:
        self.count = 0
        self.config = "as built"

    def __getstate__(self) -> Any:
        return {"count": self.count}


@pytest.mark.parametrize("kind", [Counting, WithoutSetstate])
def test_getstate_decides_what_is_kept(kind: Callable[[], Any]) -> None:
    watched = Watched(kind())
    watched.function.count = 3
    assert watched.kept() == {"count": 3}
    again = watched.restarted(kind())
    assert again.count == 3
    assert len(vars(again)) == 2


def test_result_of_getstate_must_be_serializable() -> None:
    watched = Watched(Counting())
    watched.function.count = threading.Lock()
    with pytest.raises(SerializationError, match=r"uid 'f'.*: what __getstate__ returned cannot be checkpointed"):
        watched.snapshot()


class Slotted(Function):
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 0
        self.config = "as built"


@dataclass(slots=True)
class Dataclass(Function):
    config: str = "as built"
    count: int = 0


@dataclass(frozen=True)
class Frozen(Function):
    counts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Point:
    x: int


@pytest.mark.parametrize("kind", [Slotted, Dataclass])
def test_slots_are_fields(kind: Callable[[], Any]) -> None:
    watched = Watched(kind())
    watched.function.count = 3
    assert watched.kept() == ({"count": 3}, [])
    again = kind()
    again.config = "changed"
    assert (watched.restarted(again).count, again.config) == (3, "changed")
    assert not hasattr(again, "unset")


def test_frozen_function_may_hold_mutable_values() -> None:
    watched = Watched(Frozen())
    watched.function.counts.append(1)
    assert watched.restarted(Frozen()).counts == [1]


def test_values_of_the_jobs_own_classes() -> None:
    watched = Watched(Detector())
    watched.function.newest = Point(7)
    assert watched.restarted(Detector()).newest == Point(7)
