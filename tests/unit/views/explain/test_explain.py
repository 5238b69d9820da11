"""Explanations of plans: recorded text, diagrams and JSON, and what they say in special cases."""

from __future__ import annotations

import ast
import functools
import gc
import json
import operator
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import MapFunction
from dsv2.graph import Plan
from dsv2.local import LocalRuntime
from dsv2.plan_view.code import _find_lambdas, code_of
from dsv2.plan_view.view import processing_of, view_of
from dsv2.runtime.operator.async_processor import AsyncBatchProcessor, AsyncProcessor
from dsv2.runtime.operator.attempting_calls import _AttemptingProcessor
from dsv2.runtime.operator.processors import (
    BatchProcessor,
    ColumnarProcessor,
    KeyedBatchProcessor,
    KeyedProcessor,
    RowProcessor,
)
from dsv2.sinks import CollectSink
from dsv2.sources import DataFrameSource
from dsv2.views.explain import Explanation, Fact, PlanView, Processing, RuntimeView, explain, json_schema, wording
from dsv2.views.explain.wording import short_location
from tests import ROOT
from tests.async_functions import Waiting
from tests.documented_plans import DIAGRAMS, draw
from tests.explained_program import GOLDEN, SCHEMA, golden_file, recorded
from tests.support import Driver, NoRows, local_environment, one_input
from tests.unit.arrow.test_arrow_functions import Click, Sum

Build = Callable[[ExecutionEnvironment], Any]


@pytest.mark.parametrize("format", GOLDEN)
def test_explanation_is_as_recorded(format: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # text has paths relative to the current directory
    assert golden_file(recorded(), format) == (ROOT / "tests" / "golden" / GOLDEN[format]).read_text()


def test_json_is_the_model() -> None:
    explanation = recorded()
    assert msgspec.json.decode(explanation.render("json"), type=PlanView) == explanation.view


def test_documented_schema_is_current() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema()


@pytest.mark.parametrize("path", DIAGRAMS)
def test_documented_diagram_is_current(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert (ROOT / path).read_text(encoding="utf-8") == draw(path), "./run python -m tests.documented_plans"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_image_has_a_title_and_the_whole_plan_as_text() -> None:
    explanation = recorded()
    root = ET.fromstring(explanation.render("svg"))
    title, description = (root.findtext(f"{{http://www.w3.org/2000/svg}}{name}") for name in ("title", "desc"))
    assert root.get("role") == "img"
    assert title == "orders: streaming, 9 operators, 3 levels, 3 exchanges"
    assert description == explanation.render("text")


ODD = "a\x00b\x1b[31m <script>alert(1)</script> \"q\" & 'x'\nnew ü 検索 \ud800 👩‍👩‍👧"


def test_odd_names_are_escaped() -> None:
    env = local_environment()
    env.from_collection([1], ODD).with_uid(ODD).map(abs).with_uid("m").to_sink(CollectSink()).with_name(ODD)
    explanation = env.explain(job_name=ODD)
    svg, html = explanation.render("svg"), explanation._repr_html_()
    assert html is not None
    assert any("<script>" in text for text in texts(svg))
    for text in (svg, html, explanation.render("mermaid"), explanation.render("text")):
        assert "\x00" not in text
        assert "\x1b" not in text
        text.encode()
    assert "<script>" not in svg + html + explanation.render("mermaid")
    assert json.loads(explanation.render("json"))["operators"][0]["uid"] == ODD


def test_formats_of_str_and_notebooks() -> None:
    env = local_environment()
    env.from_collection([1]).to_sink(CollectSink())
    explanation = env.explain()
    assert str(explanation) == repr(explanation) == explanation.render("text")
    assert str(env.explain("mermaid")).startswith("flowchart TB\n")
    assert explanation._repr_svg_() == explanation.render("svg")
    html = explanation._repr_html_()
    assert html is not None
    assert html.startswith("<svg ")
    assert env.explain("json")._repr_html_() is None
    for build in (lambda: env.explain("png"), lambda: explanation.render("png")):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="format must be one of 'text', 'mermaid', 'svg', 'json'"):
            build()


@pytest.mark.parametrize(
    ("name", "start"), [("p.svg", "<svg"), ("p.txt", "dsv2 job"), ("p.mmd", "fl"), ("p.json", "{")]
)
def test_save_chooses_the_format_by_suffix(tmp_path: Path, name: str, start: str) -> None:
    recorded_job = local_environment()
    recorded_job.from_collection([1]).to_sink(CollectSink())
    recorded_job.explain().save(tmp_path / name)
    assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(ConfigurationError, match=r"plan.png has no known format. Its suffix must be one of: .txt, "):
        recorded_job.explain().save(tmp_path / "plan.png")


def test_explaining_neither_runs_nor_changes_the_pipeline() -> None:
    env, sink = local_environment(), CollectSink[int]()
    env.from_collection([1, 2]).map(abs).with_uid("m").to_sink(sink)
    before = env.build_plan().operators
    first = str(env.explain())
    assert sink.results == []
    assert env.build_plan().operators == before
    env.execute()
    assert sorted(sink.results) == [1, 2]
    assert "from Collection Source" in first


def broken_uid(env: ExecutionEnvironment) -> None:
    env.from_collection([1]).with_uid("same").to_sink(CollectSink()).with_uid("same")


def broken_state(env: ExecutionEnvironment) -> None:
    bad: Any = one_input(uses_states=lambda: 3)
    env.from_collection([1]).key_by(str, version=4).process(bad).with_uid("bad").to_sink(CollectSink())


def nothing(env: ExecutionEnvironment) -> None:
    pass


@pytest.mark.parametrize("build", [broken_uid, broken_state, nothing])
def test_invalid_pipeline_is_shown_with_its_error(build: Build) -> None:
    env = local_environment()
    build(env)
    explanation = env.explain()
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whichever it is, explain shows the same
        env.execute()
    assert explanation.view.error == f"{type(raised.value).__name__}: {raised.value}"
    assert not explanation.is_valid
    assert len(explanation.view.operators) == len(env._builder.nodes)
    first = explanation.view.error.split()[1]
    assert first in explanation.render("text")
    assert any(first in text for text in texts(explanation.render("svg")))
    assert explanation.render("mermaid").startswith("flowchart TB\n")
    assert first in str(explanation._repr_html_())


def test_errors_of_other_kinds_are_raised() -> None:
    env = local_environment()
    env.from_collection([1]).process(one_input(declare_watermarks=lambda: 1 // 0)).to_sink(CollectSink())
    with pytest.raises(ZeroDivisionError):
        env.explain()


class Facts(LocalRuntime):
    def runtime_view(self, plan: Plan) -> RuntimeView:
        return RuntimeView("cluster", one_process=False, facts=(Fact("machines", len(plan.operators)),))


class Silent:
    """A runtime that adds nothing."""

    def start(self, plan: Plan, options: Any) -> Any:
        raise AssertionError


def test_runtime_adds_facts() -> None:
    env = ExecutionEnvironment.get_instance(Facts())
    env.from_collection([1]).to_sink(CollectSink())
    assert "\n\nRuntime: cluster\n  machines: 2\n\n" in str(env.explain())
    assert view_of(env.build_plan()).runtime is None


def test_runtime_may_add_nothing() -> None:
    env = ExecutionEnvironment.get_instance(Silent())
    env.from_collection([1]).to_sink(CollectSink())
    assert env.explain().view.runtime is None


def test_refusal_of_the_runtime_is_shown() -> None:
    env = local_environment()
    env.from_source(DataFrameSource(NoRows(), dict), "rows").with_uid("rows").to_sink(CollectSink())
    explanation = env.explain()
    assert explanation.is_valid
    assert explanation.view.runtime is not None
    assert "is a DataFrame, which only Spark can read" in str(explanation.view.runtime.refusal)
    assert "refuses this plan: ConfigurationError: The source rows" in str(explanation)


def test_importing_dsv2_does_not_load_explanations() -> None:
    code = "import sys, dsv2; print([name for name in sys.modules if name.startswith('dsv2.views.explain')])"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


class Keys:
    def first(self, record: Any) -> Any:
        return record

    def __call__(self, record: Any) -> Any:
        return record


def named(record: Any) -> Any:
    return record


TWO = [lambda a: a.x, lambda a: (a.x, "y")]
BRANCH = lambda a: a if a else None  # noqa: E731
NESTED: Callable[[object], Callable[[object], object]] = lambda a: lambda a: a  # noqa: E731


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (TWO[0], "lambda a: a.x"),
        (TWO[1], 'lambda a: (a.x, "y")'),
        (BRANCH, "lambda a: a if a else None"),
        (NESTED, "lambda a: lambda a: a"),
        (NESTED(1), "lambda a: a"),
        (lambda record: record[0], "lambda record: record[0]"),
        (named, "named"),
        (Keys().first, "Keys.first"),
        (Keys(), "Keys"),
        (Keys, "Keys"),
        (str, "str"),
        (len, "len"),
        (str.lower, "str.lower"),
        (operator.itemgetter(0), "itemgetter(0)"),
        (operator.attrgetter("a.b"), "attrgetter('a.b')"),
        (functools.partial(named, 1), "partial(named, ...)"),
        (eval("lambda record: record"), "lambda"),  # its source is not available
    ],
)
def test_names_of_callables(function: Any, text: str) -> None:
    assert code_of(function).text == text


def test_places_of_callables() -> None:
    file = str(Path(__file__))
    assert code_of(named).location == f"{file}:{named.__code__.co_firstlineno}"
    assert code_of(functools.partial(named)).location == code_of(named).location
    assert code_of(Keys().first).location == f"{file}:{Keys.first.__code__.co_firstlineno}"
    assert code_of(len).location is code_of(str).location is code_of(operator.itemgetter(0)).location is None


def test_long_lambdas_are_shortened() -> None:
    # fmt: off
    text = code_of(lambda record: (record.first_part, record.second_part,
                                   record.third_part, record.fourth_part, record.fifth_part)).text
    # fmt: on
    assert text.startswith("lambda record: (record.first_part, record.second_part, record.third_part")
    assert text.endswith("…")
    assert len(text) == 80


def test_lambdas_are_found_while_other_threads_parse() -> None:
    """A garbage collection lets other threads run. They parse as well if they format a traceback."""

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        collections.append(sum(range(1000)))

    def parse() -> None:
        while not stopped.is_set():
            ast.parse("(a.b(c) // d + e[f])")

    collections: list[int] = []
    stopped, interval = threading.Event(), sys.getswitchinterval()
    thread = threading.Thread(target=parse)
    gc.callbacks.append(let_others_run)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for number in range(5):
            source = Path(__file__).read_text() + f"\n# {number}"
            assert any(node.args.args[0].arg == "record" for node in _find_lambdas(source) if node.args.args)
    finally:
        stopped.set()
        sys.setswitchinterval(interval)
        gc.callbacks.remove(let_others_run)
        thread.join()
    assert gc.isenabled()


def generator(per_event: bool = False) -> Any:
    builder = EventTimeExtension.new_watermark_generator_builder(lambda number: number)
    return (builder.per_event_watermark() if per_event else builder).build_as_process_function()


PROCESSORS: dict[type, Processing] = {
    _AttemptingProcessor: Processing.RECORDS,
    RowProcessor: Processing.RECORDS,
    KeyedProcessor: Processing.RECORDS,
    BatchProcessor: Processing.BATCHES,
    KeyedBatchProcessor: Processing.STAMPED_BATCHES,
    ColumnarProcessor: Processing.TABLES,
    AsyncProcessor: Processing.IN_FLIGHT,
    AsyncBatchProcessor: Processing.IN_FLIGHT,
}


class OnlyRecords(MapFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.process(MapFunction(abs)),
        lambda stream: stream.filter(bool),
        lambda stream: stream.flat_map(list),
        lambda stream: stream.union(stream),
        lambda stream: stream.process(one_input()),
        lambda stream: stream.process(generator()),
        lambda stream: stream.process(generator(per_event=True)),
        lambda stream: stream.process(OnlyRecords(abs)),
        lambda stream: stream.key_by(str).process(MapFunction(abs)),
        lambda stream: stream.key_by(str).window(WindowStrategy.global_()).reduce(max),
        lambda stream: stream.global_().window(WindowStrategy.global_()).reduce(max),
        lambda stream: stream.process(Sum()),
        lambda stream: stream.key_by(str).process(Sum()),
        lambda stream: stream.process(Waiting()),
        lambda stream: stream.key_by(str).process(Waiting()).with_error_policy(ErrorPolicy().skip()),
        lambda stream: stream.map(abs).with_error_policy(ErrorPolicy().skip()),
        lambda stream: (
            stream.key_by(str).window(WindowStrategy.global_()).reduce(max).with_error_policy(ErrorPolicy().skip())
        ),
    ],
)
def test_processing_is_that_of_the_runtime(build: Callable[[Any], Any]) -> None:
    env = local_environment()
    build(env.from_collection([Click("ada", 1)]).with_uid("source")).with_uid("function")
    plan = env.build_plan()
    (task,) = Driver(plan, "function").subtask._tasks
    assert processing_of(task.operator) is PROCESSORS[type(task._processors[0])]


def test_explanation_of_a_plan_equals_that_of_the_environment_without_runtime() -> None:
    env = ExecutionEnvironment.get_instance(Silent())
    env.from_collection([1]).to_sink(CollectSink())
    assert isinstance(explain(env.build_plan()), Explanation)
    assert str(explain(env.build_plan(), "json")) == str(env.explain("json"))


def test_locations_are_relative_to_the_current_directory_if_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert short_location(f"{folder / 'jobs.py'}:3") == "jobs.py:3"
    assert short_location(f"{tmp_path / 'jobs.py'}:3") == f"{tmp_path / 'jobs.py'}:3"
    folder.rmdir()
    assert short_location(f"{folder / 'jobs.py'}:3") == f"{folder / 'jobs.py'}:3"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("windows of 60000 ms every 60000 ms from 0 ms in event time, 0 ms late", "windows of 1 min in event time"),
        (
            "windows of 3600000 ms every 60000 ms from 5000 ms in event time, 1500 ms late",
            "windows of 1 h every 1 min from 5 s in event time, 1500 ms late",
        ),
        ("windows of 60 records every 60", "windows of 60 records every 60"),
        ("windows of 10 ms every 100 ms from 0 ms in event time", "windows of 10 ms every 100 ms in event time"),
    ],
)
def test_durations_of_windows_are_for_people(layout: str, text: str) -> None:
    assert wording._layout_text(layout) == text
