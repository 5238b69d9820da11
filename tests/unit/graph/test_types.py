"""The classes that a job registers because its program mentions them, and errors about unpicklable objects."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from subprocess import Popen, getoutput
from time import struct_time
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
import pytest

from dsv2 import Collector, ExecutionEnvironment, NonKeyedPartitionStream, PartitionedContext
from dsv2.arrow import ArrowForeachBatchSink
from dsv2.connectors.kafka import KafkaMessage, KafkaSource, values
from dsv2.connectors.postgres import PostgresSource, RowChange, UndecodedValue
from dsv2.errors import CorruptDataError, SerializationError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import DataFrameSource, DataGeneratorSource, HybridSource, Source
from examples.tweets import Tweet
from tests.spans import Spans
from tests.support import NoRows, local_environment, one_input


class OfThisModule:
    """Not named by any function."""


class Function(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, field: Any = None) -> None:
        self.field = field

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


def registry_of(build: Callable[[ExecutionEnvironment, NonKeyedPartitionStream[Any]], object]) -> TypeRegistry:
    env = local_environment()
    build(env, env.from_collection(list[Any](), "numbers"))
    return TypeRegistry.of(env.build_plan())


def brings(registry: TypeRegistry, kind: type) -> bool:
    try:
        return registry.find(kind.__module__, kind.__qualname__) is kind
    except CorruptDataError:
        return False


def test_classes_of_the_function_module_are_registered() -> None:
    registry = registry_of(lambda env, numbers: numbers.process(Function()))
    assert brings(registry, OfThisModule)
    assert brings(registry, Function)
    assert brings(registry, Tweet)
    assert not brings(registry, Popen)  # imported here as well, but more than a data class
    assert not brings(registry, Path)
    assert not brings(registry, struct_time)  # a tuple without named fields


def test_other_classes_are_not_registered() -> None:
    registry = registry_of(lambda env, numbers: numbers.to_sink(CollectSink()))
    assert not brings(registry, OfThisModule)


def other_module(code: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An importable module with ``code``."""
    module = ModuleType("other_module_of_the_program")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    return module


@pytest.mark.parametrize(
    "build",
    [
        lambda numbers, function: numbers.map(function),
        lambda numbers, function: numbers.filter(function),
        lambda numbers, function: numbers.process(Function(function)),
        lambda numbers, function: numbers.key_by(function).process(Function()),
    ],
    ids=["map", "filter", "field", "key selector"],
)
def test_classes_of_modules_of_plain_functions(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = other_module("class Made: ...\ndef make(record): return Made()", monkeypatch)
    assert brings(registry_of(lambda env, numbers: build(numbers, other.make)), other.Made)


# fmt: off
MENTIONS: list[tuple[str, Callable[[Any, Any, Any], object]]] = [
    ("a value in a field", lambda env, numbers, kind: numbers.process(Function([kind(1)]))),
    ("a class in a field", lambda env, numbers, kind: numbers.process(Function(kind))),
    ("a variable of a function", lambda env, numbers, kind: numbers.map(lambda number: kind(number))),
    ("a variable of a key selector", lambda env, numbers, kind: numbers.key_by(lambda number: kind(number)).process(
        Function())),
    ("a variable of an output key selector", lambda env, numbers, kind: numbers.key_by(str).process(
        Function(), lambda number: kind(number))),
    ("a variable of a generator", lambda env, numbers, kind: env.from_source(DataGeneratorSource(
        lambda index: kind(index), count=1)).to_sink(CollectSink())),
    ("an element", lambda env, numbers, kind: env.from_collection([1, kind(1)]).to_sink(CollectSink())),
    ("within an element", lambda env, numbers, kind: env.from_collection([{"a": kind(1)}]).to_sink(CollectSink())),
    ("an argument of the base class", lambda env, numbers, kind: numbers.process(function_of(kind))),
    ("the rows of a DataFrame", lambda env, numbers, kind: env.from_source(DataFrameSource(NoRows(), kind)).to_sink(
        CollectSink())),
    ("the schema of a file", lambda env, numbers, kind: numbers.to_sink(FileSink("out", schema=kind))),
    ("the records of a sink", lambda env, numbers, kind: numbers.to_sink(ArrowForeachBatchSink(print, kind))),
    ("registered", lambda env, numbers, kind: (env.register_type(kind), numbers.to_sink(CollectSink()))),
]
# fmt: on


def function_of(kind: Any) -> Any:
    class Typed(OneInputStreamProcessFunction[Any, kind]):
        def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None: ...

    return Typed()


@pytest.mark.parametrize(("place", "build"), MENTIONS, ids=[place for place, _ in MENTIONS])
def test_mentioned_local_classes_are_registered(place: str, build: Any) -> None:
    @dataclass(frozen=True)
    class Local:
        value: int

    assert brings(registry_of(lambda env, numbers: build(env, numbers, Local)), Local)


def test_class_of_a_value_is_registered() -> None:
    registry = registry_of(lambda env, numbers: numbers.process(Function([Path(), PurePosixPath()])))
    assert brings(registry, type(Path()))
    assert brings(registry, PurePosixPath)


SOURCES: dict[str, tuple[Source[Any, Any, Any], list[type]]] = {
    "kafka": (KafkaSource("host:9092", topics="t", decode=values(bytes.decode)), [KafkaMessage]),
    "postgres": (PostgresSource("host=h", "t", slot_name="s", decode=dict), [RowChange, UndecodedValue]),
}
SOURCES["one after the other"] = (HybridSource([Spans({"a": 1}), SOURCES["postgres"][0]]), [RowChange])


@pytest.mark.parametrize("name", SOURCES)
def test_source_registers_its_record_classes(name: str) -> None:
    source, kinds = SOURCES[name]
    registry = registry_of(lambda env, numbers: env.from_source(source).to_sink(CollectSink()))
    assert all(brings(registry, kind) for kind in kinds)


def test_standard_library_modules_are_not_registered() -> None:
    registry = registry_of(lambda env, numbers: numbers.key_by(getoutput).process(Function(getoutput)).map(getoutput))
    assert not brings(registry, Popen)


def test_called_class_of_another_module_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    other = other_module("class Made: ...", monkeypatch)
    made = other.Made
    assert brings(registry_of(lambda env, numbers: numbers.map(lambda number: made())), made)


def test_called_non_data_class_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may start processes. The bytes of its checkpoint must not be able to."""
    program = {"__name__": "__main__"}
    exec("from subprocess import Popen\nfrom uuid import UUID\ndef f(r): return Popen, UUID", program)
    registry = registry_of(lambda env, numbers: numbers.map(program["f"]))  # type: ignore[arg-type]
    assert not brings(registry, Popen)


IN_A_WORKER = """
import sys, cloudpickle
from dsv2.runtime.serde.codec import Codec
registry, data, names = cloudpickle.load(open(sys.argv[1], "rb"))
codec = Codec(registry)
values = codec.loads(codec.dumps(codec.loads(data, "there")), "there and back")
print(values == [registry.find(*name)(1) for name in names], [type(value).__qualname__ for value in values])
"""


def test_registry_is_the_same_in_another_process(tmp_path: Path) -> None:
    class Local(NamedTuple):
        value: int

    @dataclass
    class Other:
        value: int

    registry = registry_of(lambda env, numbers: numbers.process(Function([Local(1), Other])))
    data = Codec(registry).dumps([Local(1), Other(1)])
    names = [(kind.__module__, kind.__qualname__) for kind in (Local, Other)]
    file = tmp_path / "registry"
    file.write_bytes(cloudpickle.dumps((registry, data, names)))
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", IN_A_WORKER, str(file)]
    told = subprocess.check_output(command, env=os.environ | paths, text=True)
    assert told == f"True {[name for _, name in names]}\n"


def test_unknown_class_is_named_with_a_remedy() -> None:
    with pytest.raises(CorruptDataError) as caught:
        registry_of(lambda env, numbers: numbers.map(str)).find("app.records", "Tweet")
    assert str(caught.value) == (
        "The bytes name app.records.Tweet, which this job does not use. If it is the class of a record, of a value "
        "in a state or of a function's field, call env.register_type(Tweet). If it was renamed or moved, register its "
        "new class with formerly='app.records.Tweet'."
    )


LOCK = threading.Lock()
# fmt: off
REFUSED: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda env, numbers: numbers.process(Function(LOCK)).with_uid("bad"),
     "Field 'field' (lock) of the function of Process (uid 'bad'), defined at HERE, cannot be pickled: cannot pickle "
     "'_thread.lock' object. Use plain values. Hold a model or a client in a dsv2.Resource. Or define __getstate__ "
     "(without the field) and __setstate__ (which recreates it)."),
    (lambda env, numbers: numbers.map(lambda number, lock=LOCK: number).with_uid("bad"),
     "Field 'function' (function) of the function of Map (uid 'bad'), defined at HERE, cannot be pickled: "),
    (lambda env, numbers: numbers.key_by(lambda number, lock=LOCK: number).process(Function()).with_uid("bad"),
     "The key selector of KeyedProcess (uid 'bad'), defined at HERE, cannot be pickled: cannot pickle '_thread.lock' "
     "object. It must not capture sessions, locks or open files."),
    (lambda env, numbers: numbers.key_by(str).process(one_input(), lambda out, lock=LOCK: out).with_uid("bad"),
     "The output key selector of KeyedProcess (uid 'bad'), defined at HERE, cannot be pickled: "),
    (lambda env, numbers: env.from_source(DataGeneratorSource(partial(max, LOCK), count=1)).with_uid("bad").map(str),
     "Field 'generator' (partial) of the source Source (uid 'bad'), defined at HERE, cannot be pickled: "),
    (lambda env, numbers: env.from_collection([1, LOCK]).with_uid("bad").map(str),
     "An element of Collection Source (uid 'bad'), defined at HERE, cannot be pickled: "),
]
# fmt: on


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_unpicklable_object_is_named_with_its_location(build: Any, message: str) -> None:
    with pytest.raises(SerializationError) as caught:
        registry_of(build)
    here = f"{build.__code__.co_filename}:{build.__code__.co_firstlineno}"
    assert str(caught.value).replace(here, "HERE").startswith(message)
