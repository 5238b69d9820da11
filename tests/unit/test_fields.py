"""The fields of a function as state: what changed is kept, what did not follows the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from dsv2 import SerializationError
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
    """A function as the runtime holds it: built, perhaps restored, used, put into bytes."""

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

    def kept(self) -> Any:
        return self.codec.loads(self.fields.snapshot(), "test")

    def restarted(self, function: Any) -> Any:
        """``function`` as it is after the program was started again with it."""
        return Watched(function, self.fields.snapshot()).function


def test_only_what_changed_is_kept() -> None:
    watched = Watched(Detector())
    assert watched.kept() == ({}, [])
    watched.function.newest = 7
    assert watched.kept() == ({"newest": 7}, [])


def test_a_change_within_a_field_is_noticed() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    assert watched.kept() == ({"times": {"a": [1]}}, [])
    watched.function.times["a"].append(2)
    assert watched.restarted(Detector()).times == {"a": [1, 2]}


def test_a_changed_argument_of_the_constructor_is_obeyed_after_a_restart() -> None:
    watched = Watched(Detector(threshold=100))
    watched.function.newest = 7
    assert vars(watched.restarted(Detector(threshold=5))) == {"threshold": 5, "times": {}, "newest": 7}


def test_a_field_that_changed_once_is_state_for_ever() -> None:
    """Whatever it is now: the program may start from another value."""
    first = Watched(Detector(threshold=100))
    first.function.threshold = 50
    second = Watched(Detector(threshold=100), first.fields.snapshot())
    second.function.threshold = 100
    third = Watched(Detector(threshold=5), second.fields.snapshot())
    assert third.function.threshold == 100
    assert third.kept() == ({"threshold": 100}, [])


def test_the_same_value_again_is_no_change() -> None:
    watched = Watched(Detector(threshold=[1, 2]))
    watched.function.threshold = [1, 2]
    watched.function.newest = -1
    assert watched.kept() == ({}, [])


def test_what_is_encoded_meanwhile_changes_no_field() -> None:
    """A class without a name makes the codec write others in another way; a bound method cannot be read back."""

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


def test_a_removed_field_that_the_program_no_longer_has_is_no_matter() -> None:
    watched = Watched(Detector())
    del watched.function.newest
    assert vars(watched.restarted(Function())) == {}


def test_fields_that_hold_the_same_object_still_do() -> None:
    watched = Watched(Detector())
    watched.function.times = {"a": []}
    watched.function.current = watched.function.times["a"]
    again = watched.restarted(Detector())
    assert again.current is again.times["a"]


def test_what_was_kept_is_not_what_is_used() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    again = watched.restarted(Detector())
    watched.function.times["a"].append(2)
    assert again.times == {"a": [1]}


@pytest.mark.parametrize("configuration", [lambda number: number + 1, threading.Lock(), print, Detector])
def test_configuration_that_cannot_be_pickled_is_left_to_the_program(configuration: Any) -> None:
    watched = Watched(Detector(threshold=configuration))
    assert watched.kept() == ({}, [])
    assert watched.restarted(Detector(threshold=5)).threshold == 5


WAY_OUT = (
    " Fields of a function are part of its state: store plain values in them, or define __getstate__ (without the "
    "field) and __setstate__ (which recreates it)."
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
def test_a_new_value_that_cannot_be_kept_is_named_with_the_way_out(name: str, value: Any, reason: str) -> None:
    """At once, and not when the bytes are to be read again."""
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    setattr(watched.function, name, value)
    with pytest.raises(SerializationError) as caught:
        watched.fields.snapshot()
    message = str(caught.value)
    assert message.startswith(f"Process (uid 'f'), defined at {__file__}:")
    assert f": field {name!r} ({type(value).__qualname__}) cannot be checkpointed. " in message
    assert reason in message
    assert message.endswith(WAY_OUT)


def test_a_field_that_could_be_kept_so_far_is_named_as_well() -> None:
    watched = Watched(Detector())
    watched.function.times["a"] = [1]
    watched.function.newest = 7
    watched.fields.snapshot()
    watched.function.times["b"] = threading.Lock()
    with pytest.raises(SerializationError, match=r"field 'times' \(dict\) cannot be checkpointed"):
        watched.fields.snapshot()


class Counting(Function):
    """Leaves out what cannot be pickled, and builds it again."""

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
def test_a_function_may_say_itself_what_is_kept(kind: Callable[[], Any]) -> None:
    watched = Watched(kind())
    watched.function.count = 3
    assert watched.kept() == {"count": 3}
    again = watched.restarted(kind())
    assert again.count == 3
    assert len(vars(again)) == 2


def test_what_getstate_returns_must_be_fit_to_be_kept() -> None:
    watched = Watched(Counting())
    watched.function.count = threading.Lock()
    with pytest.raises(SerializationError, match=r"uid 'f'.*: what __getstate__ returned cannot be checkpointed"):
        watched.fields.snapshot()


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


def test_a_frozen_function_may_hold_what_changes() -> None:
    watched = Watched(Frozen())
    watched.function.counts.append(1)
    assert watched.restarted(Frozen()).counts == [1]


def test_values_of_the_jobs_own_classes() -> None:
    watched = Watched(Detector())
    watched.function.newest = Point(7)
    assert watched.restarted(Detector()).newest == Point(7)
