"""Resources: opened once in a process, shared, never stored, closed at the end."""

from __future__ import annotations

import copy
import gc
import os
import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import cloudpickle
import pytest

from dsv2 import CollectSink, ExecutionEnvironment, Resource
from dsv2.errors import ConfigurationError, Dsv2Error, ResourceError, SerializationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph.state_detection import may_keep_state
from dsv2.local import LocalRuntime
from dsv2.model.resource import any_open, close_resources, resources_in_use
from dsv2.testing import OneInputHarness
from tests.durations import ms

pytestmark = pytest.mark.usefixtures("no_other_harnesses")

EVENTS: list[str] = []


class Model:
    """The object of a resource. It cannot be pickled."""

    def __init__(self, name: str = "model") -> None:
        self.name = name
        EVENTS.append(f"open {name}")

    def close(self) -> None:
        EVENTS.append(f"close {self.name}")

    def score(self, value: int) -> int:
        return value * 10

    def __reduce__(self) -> Any:
        raise TypeError("a model is not pickled")


@pytest.fixture(autouse=True)
def events() -> Iterator[list[str]]:
    close_resources()  # also event loops, which may refer to harnesses of earlier tests
    while gc.collect():  # these use the resources of this process as long as they exist
        pass
    close_resources()
    EVENTS.clear()
    yield EVENTS
    close_resources()


class Score(OneInputStreamProcessFunction[int, int]):
    MODEL = Resource(Model, close=Model.close)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(self.MODEL.get().score(record))


class ScoreWith(OneInputStreamProcessFunction[int, int]):
    def __init__(self, open_model: Callable[[], Model]) -> None:
        self.model = Resource(open_model, close=Model.close)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(self.model.get().score(record))


def run(function: OneInputStreamProcessFunction[int, int], **options: Any) -> list[int]:
    sink = CollectSink[int]()
    env = ExecutionEnvironment.get_instance(LocalRuntime(**options))
    env.set_parallelism(2)
    env.from_collection(range(10)).key_by(lambda number: number).process(function).to_sink(sink)
    env.execute()
    return sorted(sink.results)


@pytest.mark.parametrize("function", [Score(), ScoreWith(Model)], ids=["class attribute", "field"])
def test_one_load_for_all_subtasks_and_micro_batches(
    function: OneInputStreamProcessFunction[int, int], events: list[str]
) -> None:
    assert run(function, batches=[1]) == [number * 10 for number in range(10)]
    assert events == ["open model", "close model"]


def test_next_job_opens_it_again(events: list[str]) -> None:
    run(Score(), checks=False)
    run(Score(), checks=False)
    assert events == ["open model", "close model"] * 2


class Fail(Score):
    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)
        raise ValueError("bad record")


def test_failure_closes_it(events: list[str]) -> None:
    with pytest.raises(UserFunctionError, match="bad record"):
        run(Fail())
    assert events == ["open model", "close model"]
    run(Score())
    assert events == ["open model", "close model"] * 2


def broken() -> Model:
    raise OSError("no such file")


def test_failure_to_open_names_the_resource() -> None:
    with pytest.raises(UserFunctionError) as failed:
        run(ScoreWith(broken))
    text = str(failed.value)
    assert "ResourceError: Resource(broken) cannot be opened: OSError: no such file" in text
    assert 'raise OSError("no such file")' in text
    assert failed.value.callback == "process_record"


def test_opening_is_tried_again(events: list[str]) -> None:
    attempts = iter([broken, Model])
    model = Resource(lambda: next(attempts)())
    with pytest.raises(ResourceError):
        model.get()
    assert model.get().score(1) == 10
    assert events == ["open model"]


def test_last_opened_is_closed_first(events: list[str]) -> None:
    inner = Resource(lambda: Model("inner"), close=Model.close)
    outer = Resource(lambda: [inner.get(), Model("outer")][1], close=Model.close)
    with resources_in_use():
        outer.get()
    assert events == ["open inner", "open outer", "close outer", "close inner"]


def test_failure_to_close_does_not_keep_others_open(events: list[str], caplog: pytest.LogCaptureFixture) -> None:
    first = Resource(Model, close=Model.close)
    second = Resource(Model, close=lambda model: 1 / 0)
    with resources_in_use():
        first.get(), second.get()
    assert events == ["open model", "open model", "close model"]
    assert "could not be closed" in caplog.text
    assert not any_open()


def test_users_are_counted(events: list[str]) -> None:
    model = Resource(Model, close=Model.close)
    with resources_in_use():
        with resources_in_use():
            model.get()
        assert events == ["open model"]
    assert events == ["open model", "close model"]


def test_kept_between_tasks_unless_one_fails(events: list[str]) -> None:
    model = Resource(Model, close=Model.close)
    for _ in range(3):
        with resources_in_use(timedelta(hours=1)):
            model.get()
    assert events == ["open model"]
    with pytest.raises(ValueError, match="no"), resources_in_use(timedelta(hours=1)):
        raise ValueError("no")
    assert events == ["open model", "close model"]


def test_closed_after_the_given_time(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, action: Callable[[], None]) -> None:
            self.seconds, self.action, self.cancelled = seconds, action, False
            timers.append(self)

        def start(self) -> None: ...

        def cancel(self) -> None:
            self.cancelled = True

    monkeypatch.setattr("dsv2.model.resource.threading.Timer", Timer)
    model = Resource(Model, close=Model.close)
    with resources_in_use(ms(1500)):
        model.get()
    with resources_in_use(ms(1500)):
        timers[0].action()  # it was too late to cancel it
        assert events == ["open model"]
    assert [timer.seconds for timer in timers] == [1.5, 1.5]
    assert timers[0].cancelled
    timers[1].action()
    assert events == ["open model", "close model"]


def test_unused_one_is_closed_while_others_are_used(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 30.0, 60.0])
    monkeypatch.setattr("dsv2.model.resource.monotonic", lambda: next(now))
    old, new = (Resource(partial(Model, name), close=Model.close) for name in ("old", "new"))
    with resources_in_use(timedelta(seconds=45)):
        old.get(), new.get()
    for _ in range(2):
        with resources_in_use(timedelta(seconds=45)):
            new.get()
    assert events == ["open old", "open new", "close old"]


def test_copies_in_a_process_share_the_value(events: list[str]) -> None:
    function = ScoreWith(Model)
    value = function.model.get()
    copies = [copy.deepcopy(function), cloudpickle.loads(cloudpickle.dumps(function))]
    assert all(one.model.get() is value for one in copies)
    assert events == ["open model"]
    assert ScoreWith(Model).model.get() is not value  # another resource


def test_value_is_not_pickled(events: list[str]) -> None:
    model = Resource(Model)
    model.get()
    assert len(pickle.dumps(model)) < 200


def test_forked_process_opens_its_own(events: list[str]) -> None:
    model = Resource(os.getpid)
    parent = model.get()
    if (child := os.fork()) == 0:
        own = model.get() == os.getpid()
        os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert model.get() == parent


class OpensInCallback(OneInputStreamProcessFunction[int, int]):
    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.model = Resource(Model)


class KeepsValue(OneInputStreamProcessFunction[int, int]):
    MODEL = Resource(Model)

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.model = self.MODEL.get()


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (OpensInCallback(), "Create it as a class attribute or in the constructor"),
        (KeepsValue(), "Hold a model or a client in a dsv2.Resource"),
    ],
)
def test_value_and_resource_are_not_state(function: OneInputStreamProcessFunction[int, int], advice: str) -> None:
    with pytest.raises(SerializationError, match=advice):
        run(function)


@pytest.mark.parametrize("function", [Score(), ScoreWith(Model)], ids=["class attribute", "field"])
def test_resource_is_not_state_of_the_function(function: OneInputStreamProcessFunction[int, int]) -> None:
    assert not may_keep_state(function)


def load_later() -> Iterator[int]:
    yield 1


async def connect() -> int:
    return 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"open": "model.bin"}, r"open must be callable with \(\), not 'model.bin'"),
        ({"open": abs}, "open must be callable"),
        ({"open": Model, "close": lambda: None}, r"close must be callable with \(value\)"),
        ({"open": load_later}, "open is a generator function"),
        ({"open": connect}, "open is a coroutine function"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Resource(**arguments)


def test_unpicklable_open_is_refused_by_the_plan() -> None:
    import threading

    lock = threading.Lock()
    with pytest.raises(Dsv2Error, match=r"Field 'model' \(Resource\) .* cannot be pickled"):
        run(ScoreWith(lambda: Model(str(lock))))


def test_harness_keeps_it_open_until_the_end(events: list[str]) -> None:
    harness = OneInputHarness(Score())
    harness.input.push(1)
    harness.restart()
    harness.input.push(2)
    assert harness.output.records == [10, 20]
    assert events == ["open model"]
    harness.end()
    assert events == ["open model", "close model"]


def test_closed_harness_closes_it(events: list[str]) -> None:
    harness = OneInputHarness(Score())
    harness.input.push(1)
    harness.close()
    harness.close()
    assert events == ["open model", "close model"]
