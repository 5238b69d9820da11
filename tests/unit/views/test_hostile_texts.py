"""Records are not trusted: what commands, views, errors, warnings and logs print of them controls no terminal."""

from __future__ import annotations

import argparse
import io
import json
import logging
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import Collector, CollectSink, ErrorPolicy, ExecutionEnvironment, PartitionedContext, PrintSink
from dsv2.base.printable import printable, printable_json, printable_lines
from dsv2.base.record_table import RecordTable
from dsv2.cli.main import main, new_parser
from dsv2.errors import CorruptDataError, DroppedStateWarning, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report.short_repr import shorten
from dsv2.sinks import FileSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from dsv2.views.logs import JsonFormatter
from dsv2.views.terminal.job_watch import watch
from dsv2.views.terminal.live_view import html_of
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests.support import pass_on

HOSTILE = "tea\x1b]52;c;cm0=\x07\x1b[2J\r\x9b31m\x7f\u202e\u2028\u200bend"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ud800-\udfff]")
LATEST = new_builder("latest").type_str().build()
TEXT = StateDeclarations.value_state("text", str)


class Hostile:
    """A value whose ``repr`` is hostile."""

    def __repr__(self) -> str:
        return HOSTILE


class Row(NamedTuple):
    """A record."""

    text: str


class Keep(OneInputStreamProcessFunction[str, str]):
    """Has keys, a state, a watermark, a counter and errors with hostile texts."""

    def uses_states(self) -> set[StateDeclaration]:
        return {TEXT}

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [LATEST]

    def process_record(self, record: str, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        ctx.state_manager.get_state(TEXT).update(record)
        ctx.metric_group.counter(HOSTILE).inc()
        ctx.non_partitioned_context.watermark_manager.emit_watermark(LATEST.new_watermark(record))
        if record.startswith("tea"):
            raise ValueError(f"no price: {record}")
        output.collect(record)


def text_of(record: str) -> str:
    return record


def pipeline(env: ExecutionEnvironment, out: Path, *, stops: bool = False) -> None:
    items: list[Any] = [HOSTILE, "coffee\x1b[0m", *([Stop()] if stops else [])]
    source: TestSource[str] = TestSource(items)
    texts = env.from_source(source, "in").with_uid("in")
    kept = texts.key_by(text_of).process(Keep()).with_uid(f"keep{HOSTILE}")
    passed = kept.with_error_policy(ErrorPolicy().dead_letter()).process(pass_on).with_uid("last")
    passed.map(Row).with_uid("rows").to_sink(FileSink(out, schema=Row)).with_uid("files")
    passed.to_sink(CollectSink[str]()).with_uid("out")


class Made(NamedTuple):
    """The folders that a job with hostile texts has left."""

    checkpoint: Path
    savepoint: Path
    other: Path
    files: Path
    module: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("hostile")
    found = Made(folder / "checkpoint", folder / "savepoint", folder / "other", folder / "out", "hostile_pipelines")
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env, found.files, stops=True)
    job = env.execute_async("hostile", checkpoint_location=found.checkpoint)
    job.await_termination()
    job.savepoint(found.savepoint)
    env = ExecutionEnvironment.get_instance("local")
    source: TestSource[str] = TestSource(["x", Stop()])
    env.from_source(source, "in").with_uid("in").to_sink(CollectSink[str]())
    env.execute_async("other").savepoint(found.other)
    (folder / f"{found.module}.py").write_text(
        textwrap.dedent(f"""
        from dsv2 import ExecutionEnvironment, PrintSink

        TEXT = {HOSTILE!r}

        def refuse(record: str) -> str:
            raise ValueError(f"no price: {{record}}")

        def fails(env: ExecutionEnvironment) -> None:
            env.from_collection([TEXT]).map(refuse).with_uid("refuse" + TEXT).to_sink(PrintSink())

        def runs(env: ExecutionEnvironment) -> None:
            env.from_collection(["x"]).map(str).with_uid("str" + TEXT).to_sink(PrintSink())

        def cannot_be_built(env: ExecutionEnvironment) -> None:
            raise ValueError(TEXT)
        """)
    )
    sys.path.insert(0, str(folder))
    yield found
    sys.path.remove(str(folder))


COMMANDS: dict[str, list[list[str]]] = {
    "run": [
        ["{module}:fails"],
        ["{module}:runs"],
        ["{module}:cannot_be_built"],
    ],
    "explain": [["{module}:runs"], ["{module}:cannot_be_built"]]
    + [["{module}:runs", "--format", format] for format in ("mermaid", "svg", "json")]
    + [["{module}:runs", "--channels"]],
    "check": [
        ["{module}:runs", "--no-types"],
        ["{module}:cannot_be_built", "--no-types"],
    ],
    "watermarks": [
        ["{checkpoint}", "latest"],
        ["{checkpoint}", "latest", "--json"],
        ["{checkpoint}", HOSTILE],
        ["{checkpoint}", "latest", "--operator", "last"],
    ],
    "checkpoint backup": [["{checkpoint}", "{other}3"], ["{savepoint}", "{other}4\x1b[2J"]],
    "savepoint show": [["{savepoint}"], ["{savepoint}", "--json"]],
    "savepoint verify": [["{savepoint}"]],
    "savepoint diff": [["{savepoint}", "{other}"], ["{savepoint}", "{other}", "--json"]],
    "savepoint edit": [["{savepoint}", "{other}2", "--drop-operator", "none\x1b[2J"]],
    "state show": [["{savepoint}", f"keep{HOSTILE}", "text"], ["{savepoint}", "none\x1b[2J", "text"]],
    "state export": [["{savepoint}", "none\x1b[2J", "text", "{other}.parquet"]],
    "dead-letters show": [["{checkpoint}"], ["{checkpoint}", "0"], ["{checkpoint}", "0", "--json"]],
    "dead-letters replay": [["{checkpoint}", "no\x1b[2J"], ["{checkpoint}", "--all"]],
    "new": [["no\x1b[2J"]],
    "files show": [["{files}"], ["{files}\x1b[2J"]],
    "files truncate": [["{files}\x1b[2J", "--after", "0"]],
    "files clean": [["{files}"], ["{files}\x1b[2J"]],
}
NEED_SPARK = {"savepoint create", "checkpoint show", "checkpoint verify", "files compact"}  # print with the same Report
NEVER_END = {"dashboard"}


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[str]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield name.strip()
    for group in groups:
        for word, command in group.choices.items():
            yield from commands(command, f"{name} {word}")


def test_every_command_is_tried() -> None:
    assert set(commands(new_parser())) == COMMANDS.keys() | NEED_SPARK | NEVER_END


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(command, arguments) for command, given in COMMANDS.items() for arguments in given],
    ids=lambda value: re.sub(r"\W+", " ", " ".join(value)) if isinstance(value, list) else value,
)
def test_commands(command: str, arguments: list[str], made: Made, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*command.split(), *(word.format(**made._asdict()) for word in arguments)]
    if command in ("run", "explain", "check"):
        words += ["--runtime", "local"]
    try:
        main(words)
    except SystemExit as refused:  # argparse repeats the arguments of the user, which are no records
        raise AssertionError(words) from refused
    printed = "".join(capfd.readouterr())
    assert printed
    assert RAW.findall(printed) == [], printed


def test_output_of_another_process(made: Made) -> None:
    """The error of an own process, and of Python itself: no command catches it."""
    program = f"import {made.module} as m\nfrom dsv2 import ExecutionEnvironment as E\n"
    program += "env = E.get_instance('local')\nm.fails(env)\nenv.execute('x')\n"
    environment = {"PYTHONPATH": ":".join([str(made.checkpoint.parent), *sys.path]), "PYTHONUTF8": "1"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=False)
    assert b"no price: tea\\x1b]52;c;cm0=\\x07" in found.stderr
    assert RAW.findall(found.stderr.decode(errors="surrogateescape")) == []


def test_errors_of_other_libraries(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("dsv2.cli.dead_letters.DeadLetters.open", fail)
    assert main(["dead-letters", "show", "/none"]) == 2
    assert RAW.findall(capsys.readouterr().err) == []


@pytest.mark.parametrize(
    "error", [CorruptDataError(HOSTILE), DroppedStateWarning(HOSTILE), CorruptDataError("a", HOSTILE)]
)
def test_errors_and_warnings(error: Exception) -> None:
    assert RAW.findall(str(error)) == []
    assert str(CorruptDataError("two\nlines\tand a tab")) == "two\nlines\tand a tab"


def test_error_of_a_function_keeps_its_fields() -> None:
    error = UserFunctionError(
        operator="o", callback="c", subtask=0, location="f:1", cause_type="ValueError", cause_message=HOSTILE
    )
    assert RAW.findall(str(error)) == []
    assert error.cause_message == HOSTILE, "for programs"
    assert UserFunctionError.from_json(error.as_json()).cause_message == HOSTILE


def test_logs_of_our_formatter() -> None:
    record = logging.makeLogRecord({"msg": HOSTILE, "args": (), "extra": {"name": HOSTILE}, "emoji": "😀\U000e0001"})
    line = JsonFormatter().format(record)
    assert RAW.findall(line) == []
    assert "\n" not in line
    assert (json.loads(line)["message"], json.loads(line)["emoji"]) == (HOSTILE, "😀\U000e0001")


@pytest.mark.parametrize("records", [[{HOSTILE: HOSTILE}], [Hostile()]])
def test_samples_of_streams(records: list[object]) -> None:
    assert RAW.findall(str(RecordTable(records, [HOSTILE]))) == []
    assert RAW.findall(shorten(Hostile())) == []


def test_live_views(made: Made, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance("local")
    pipeline(env, tmp_path / "out")
    stream = io.StringIO()
    job = env.execute_async(f"job{HOSTILE}", dead_letters=tmp_path / "letters")
    watch(job, stream=stream)
    shown = stream.getvalue() + html_of(job) + str(job.watermarks("latest"))
    assert "latest" in shown
    assert RAW.findall(shown) == []


@pytest.mark.parametrize("is_terminal", [True, False])
def test_print_sink(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.StringIO()
    monkeypatch.setattr(printed, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", printed)
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection(["a\x1b[2J"]).to_sink(PrintSink())
    env.from_collection(["b"]).to_sink(PrintSink(format="\x1b[1m{}".format))
    env.execute("prints")
    lines = sorted(printed.getvalue().splitlines())
    assert lines == ["\x1b[1mb", "a\\x1b[2J" if is_terminal else "a\x1b[2J"], "an own format may have styles"


@given(st.text())
def test_escapes(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)
    assert all(map(str.isprintable, re.split("[\n\t]", printable_lines(text))))
    assert printable_lines(text).count("\n") == text.count("\n")
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text
