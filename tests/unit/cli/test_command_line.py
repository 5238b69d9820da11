"""The command line: what it prints, its JSON, exit codes and errors."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.cli import main
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from dsv2.testing import Stop, TestSource

COUNT = StateDeclarations.value_state("count", int, default=0)


class Counting(OneInputStreamProcessFunction[str, int]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)


def savepoint_of(words: str, folder: Path, parallelism: int = 2) -> str:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    stream: Any = env.from_source(TestSource([*words.split(), Stop()]), "words").with_uid("words")
    counts = stream.key_by(str).process(Counting()).with_uid("counts").with_parallelism(parallelism)
    counts.to_sink(CollectSink()).with_uid("out")
    return env.execute_async("word count").savepoint(folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    return savepoint_of("a b a c", tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> str:
    return savepoint_of("a b a c c d", tmp_path_factory.mktemp("second"), parallelism=3)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    assert not captured.err or code == 2
    return code, captured.out + captured.err


def test_show(capsys: pytest.CaptureFixture[str], first: str) -> None:
    code, text = run(capsys, "savepoint", "show", first)
    assert code == 0
    assert "of the job 'word count' (local-" in text
    assert ") after micro-batch 0," in text
    lines = text.splitlines()
    assert "counts    one-input            2  count" in "\n".join(lines)
    assert 'words   {"position": 4}' in lines
    assert lines[-1].split()[:3] == ["out", "dsv2.sinks.sink.CollectSink", "False"]
    code, text = run(capsys, "savepoint", "show", first, "--json")
    shown = json.loads(text)
    assert shown["positions"] == {"words": {"position": 4}}
    assert [operator["operator"] for operator in shown["operators"]] == ["counts", "words"]
    assert shown["sinks"]["out"]["batch_id"] == shown["origin"]["batch_id"]


def test_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = savepoint_of("a b", tmp_path)
    code, text = run(capsys, "savepoint", "verify", path)
    assert (code, text.split(" files with ")[1].split(" ", 1)[1]) == (0, "bytes are as they were written.\n")
    file = next(Path(path).rglob("*keyed*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    code, text = run(capsys, "savepoint", "verify", path)
    assert code == 2
    assert text.startswith(f"dsv2: {file} was changed since the savepoint was taken.")


def test_diff(capsys: pytest.CaptureFixture[str], first: str, second: str) -> None:
    assert run(capsys, "savepoint", "diff", first, first) == (0, "The savepoints do not differ.\n")
    code, text = run(capsys, "savepoint", "diff", first, second)
    assert code == 1
    assert "its parallelism was 2 and is now 3" in text
    assert 'words   {"position": 4}  {"position": 6}' in text
    assert "out   CollectSink after micro-batch 0 of local-" in text
    code, text = run(capsys, "savepoint", "diff", first, second, "--json")
    assert code == 1
    (keyed,) = (table for table in json.loads(text)["tables"] if table["rows"] == "keyed")
    assert keyed == {"operator": "counts", "rows": "keyed", "state": "count", "added": 1, "removed": 0, "changed": 1}


def test_state_show(capsys: pytest.CaptureFixture[str], second: str) -> None:
    code, text = run(capsys, "state", "show", second, "counts", "count", "--json")
    assert code == 0
    assert {row["key"]: row["value"] for row in json.loads(text)} == {"a": 2, "b": 1, "c": 2, "d": 1}
    code, text = run(capsys, "state", "show", second, "counts", "count", "--limit", "1")
    assert text.splitlines()[0] == "subtask  key  value"
    assert text.splitlines()[-1] == "... and 3 more rows"


def test_state_export(capsys: pytest.CaptureFixture[str], second: str, tmp_path: Path) -> None:
    for kind in ("parquet", "csv", "json"):
        code, text = run(capsys, "state", "export", second, "counts", "count", f"{tmp_path}/counts.{kind}")
        assert (code, text) == (0, f"4 rows were written to {tmp_path}/counts.{kind}.\n")
    assert sorted(pq.read_table(tmp_path / "counts.parquet")["key"].to_pylist()) == ["a", "b", "c", "d"]
    assert (tmp_path / "counts.csv").read_text().splitlines()[0] == "subtask,key,value"
    rows = map(json.loads, (tmp_path / "counts.json").read_text().splitlines())
    assert sorted((row["key"], row["value"]) for row in rows) == [("a", 2), ("b", 1), ("c", 2), ("d", 1)]
    code, text = run(capsys, "state", "export", second, "counts", "count", f"{tmp_path}/counts.xls")
    assert code == 2
    assert "has no known format. Its suffix must be one of: csv, parquet, json." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint", "show", "/nowhere", "--conf", "spark.master"], "--conf spark.master: write it as NAME=VALUE."),
        (["savepoint", "show", "/nowhere"], "/nowhere is not a savepoint"),
        (["savepoint", "show", "{first}/savepoint.json"], "savepoint.json is a file"),
        (["savepoint", "create", "/a", "/b", "--state-key=/nowhere"], "The state key cannot be read from /nowhere"),
        (["checkpoint", "verify", "/a", "--state-key", "{first}"], "The state key cannot be read from"),
        (["state", "export", "{first}", "counts", "count", "/nowhere/a.csv"], "/nowhere/a.csv"),
        (["state", "export", "{first}", "counts", "count", "/nowhere/a.parquet"], "/nowhere/a.parquet"),
        (["state", "show", "{first}", "sums", "count"], "has no operator 'sums'. It has: 'counts', 'words'."),
        (["state", "show", "{first}", "counts", "sum"], "Operator 'counts' has no state 'sum'. It has: 'count'."),
    ],
)
def test_errors_have_one_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str], first: str, arguments: list[str], message: str
) -> None:
    code, text = run(capsys, *(argument.format(first=first) for argument in arguments))
    assert code == 2
    assert text.startswith("dsv2: ")
    assert message in text
    assert "Traceback" not in text


def test_edit(capsys: pytest.CaptureFixture[str], first: str, tmp_path: Path) -> None:
    changes = ["--rename-operator", "counts", "totals", "--rename-state", "totals", "count", "total"]
    code, text = run(capsys, "savepoint", "edit", first, f"{tmp_path}/a", *changes)
    assert code == 0
    assert text.splitlines() == [
        "rename-operator counts totals",
        "rename-state totals count total",
        f"The new savepoint is in {tmp_path}/a.",
    ]
    position = ["--set-position", "words", '{"position": 1}', "--drop-state", "totals", "total"]
    code, text = run(capsys, "savepoint", "edit", f"{tmp_path}/a", f"{tmp_path}/b", *position, "--json")
    assert code == 0
    assert json.loads(text) == {
        "path": f"{tmp_path}/b",
        "changes": [
            {"change": "set-position", "arguments": ["words", '{"position": 1}']},
            {"change": "drop-state", "arguments": ["totals", "total"]},
        ],
    }
    edited = Savepoint.open(tmp_path / "b")
    assert edited.operators == {"totals": (), "words": ()}
    assert edited.positions == {"words": {"position": 1}}
    code, text = run(capsys, "savepoint", "edit", f"{tmp_path}/a", f"{tmp_path}/c", "--drop-operator", "totals")
    assert code == 0
    assert Savepoint.open(tmp_path / "c").operators == {"words": ()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([], "Name a change: --rename-operator, --drop-operator"),
        (["--drop-operator", "sums"], "no operator 'sums'"),
        (["--drop-state", "counts", "sum"], "has no state 'sum'"),
        (["--set-position", "words", "{position: 1}"], "the offset is not JSON"),
        (["--set-position", "words", "7"], "a position is a dict"),
        (["--set-position", "words", "{}"], "'position' must be a whole number"),
    ],
)
def test_impossible_edits_write_nothing(
    capsys: pytest.CaptureFixture[str], first: str, tmp_path: Path, changes: list[str], message: str
) -> None:
    code, text = run(capsys, "savepoint", "edit", first, f"{tmp_path}/new", *changes)
    assert code == 2
    assert text.startswith("dsv2: ")
    assert message in text
    assert "Traceback" not in text
    assert not (tmp_path / "new").exists()


class Anything(OneInputStreamProcessFunction[Any, int]):
    """Keeps the records."""

    def __init__(self, form: Any) -> None:
        self.kept = StateDeclarations.value_state("kept", form)

    def uses_states(self) -> Any:
        return [self.kept]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(self.kept).update(record)


def savepoint_with(values: list[Any], form: Any, folder: Path, key: Any) -> str:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    stream: Any = env.from_source(TestSource([*values, Stop()]), "in").with_uid("in")
    stream.key_by(key).process(Anything(form)).with_uid("f/\x1b ü").to_sink(CollectSink()).with_uid("out")
    return env.execute_async("anything").savepoint(folder)


VALUES: list[tuple[Any, list[Any], list[Any] | None]] = [
    (float, [math.nan, math.inf, 1.5], ["nan", "inf", 1.5]),
    (bytes, [b"\xff\x00"], ["/wA="]),
    (int, [2**53 + 1, 1 << 70], [2**53 + 1, None]),
    (str, ['a,b\n"c"', "x" * 1000], ['a,b\n"c"', "x" * 1000]),
    (dict[str, list[bytes]], [{"a": [b"b"]}], [[["a", ["Yg=="]]]]),
    (datetime, [datetime(2026, 1, 2, tzinfo=UTC)], ["2026-01-02T00:00:00+00:00"]),
    (Decimal, [Decimal("0.1")], ["0.100000000000000000"]),
    (object, [{1}], None),
]


@pytest.mark.parametrize(("form", "values", "expected"), VALUES, ids=[str(form) for form, *_ in VALUES])
def test_all_kinds_of_values_are_shown_and_exported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, form: Any, values: list[Any], expected: list[Any] | None
) -> None:
    path = savepoint_with(values, form, tmp_path / "a", lambda value: f"k{str(value)[:3]}")
    column = "value_bytes" if expected is None else "value"

    def strict(text: str) -> Any:
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    code, text = run(capsys, "state", "show", path, "f/\x1b ü", "kept", "--json")
    shown = [row[column] for row in strict(text)]
    code, text = run(capsys, "state", "show", path, "f/\x1b ü", "kept")
    assert code == 0
    assert max(map(len, text.splitlines())) < 200
    assert len(text.splitlines()) == 2 + len(values)
    for kind in ("json", "csv", "parquet"):
        code, text = run(capsys, "state", "export", path, "f/\x1b ü", "kept", str(tmp_path / f"out.{kind}"))
        assert (code, text.split(" were")[0]) == (0, f"{len(values)} rows")
    exported = [strict(line)[column] for line in (tmp_path / "out.json").read_text().splitlines()]
    assert exported == shown
    if expected is not None:
        assert sorted(map(str, shown)) == sorted(map(str, expected))
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        in_csv = [row[column] for row in csv.DictReader(file)]
    plain = [json.dumps(one) if isinstance(one, list) else "" if one is None else str(one) for one in shown]
    assert in_csv == plain


def test_values_of_an_earlier_version_are_mentioned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    class Converted(Counting):
        count = StateDeclarations.value_state("count", str, version=2, migrate=lambda value, version: str(value))

        def uses_states(self) -> Any:
            return [self.count]

        def process_record(self, record: str, output: Any, ctx: Any) -> None:
            state = ctx.state_manager.get_state(self.count)
            state.update(f"{state.value()} more")

    words = savepoint_of("a b c", tmp_path / "a")
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.from_source(TestSource(["x", Stop(), "y"])).with_uid("clock").to_sink(CollectSink()).with_uid("ticks")
    stream: Any = env.from_source(TestSource(["a", "b", "c"]), "words").with_uid("words")
    stream.key_by(str).process(Converted()).with_uid("counts").to_sink(CollectSink()).with_uid("out")
    path = env.execute_async("word count", savepoint=words).savepoint(tmp_path / "b")
    for command in ("show", "export"):
        file = [f"{tmp_path}/out.csv"] if command == "export" else []
        code, text = run(capsys, "state", command, path, "counts", "count", *file)
        assert code == 0
        assert "There are also values of version 1, which the job has not converted: --version 1" in text
    code, text = run(capsys, "state", "show", path, "counts", "count", "--version=1", "--json")
    assert sorted(row["key"] for row in json.loads(text)) == ["a", "b", "c"]


def test_operators_with_any_uid_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = savepoint_with(["a"], str, tmp_path / "a", str)
    code, text = run(capsys, "savepoint", "show", path)
    assert code == 0
    assert r"f/\x1b ü" in text
    assert "\x1b" not in text


def test_output_in_an_encoding_without_the_characters(tmp_path: Path) -> None:
    path = savepoint_with(["ü"], str, tmp_path / "a", str)
    command = [sys.executable, "-m", "dsv2", "savepoint", "show", path]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert r"\xfc" in shown.stdout


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", "²"])
def test_limit_must_be_a_number(capsys: pytest.CaptureFixture[str], first: str, limit: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["state", "show", first, "counts", "count", f"--limit={limit}"])
    assert ended.value.code == 2
    assert "is not a number of rows" in capsys.readouterr().err


def test_no_rows_are_asked_for(capsys: pytest.CaptureFixture[str], first: str) -> None:
    code, text = run(capsys, "state", "show", first, "counts", "count", "--limit=0")
    assert (code, text) == (0, "(none)\n... and 3 more rows\n")


def test_paths_may_be_uris(capsys: pytest.CaptureFixture[str], first: str) -> None:
    for uri in (f"file:{first}", f"file://{first}", f"file://localhost{first}"):
        assert run(capsys, "savepoint", "verify", uri)[0] == 0


def test_unexpected_error_has_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    for error, expected, message in (
        (ValueError("something"), 2, "dsv2: ValueError: something\n"),
        (KeyboardInterrupt(), 130, ""),
    ):

        def fail(*arguments: object, raised: BaseException = error) -> None:
            raise raised

        monkeypatch.setattr(Savepoint, "verify", fail)
        assert main(["savepoint", "verify", first]) == expected
        assert capsys.readouterr().err == message


def test_command_without_spark_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "runtime_spark.command_line", None)
    code, text = run(capsys, "checkpoint", "verify", "/nowhere", "--conf", "spark.master=local[1]")
    assert code == 2
    assert text.endswith("Install it with: pip install 'dsv2[spark]'\n")


def test_module_runs_and_stops_quietly_when_its_reader_does(second: str) -> None:
    command = [sys.executable, "-m", "dsv2", "state", "show", second, "counts", "count"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("subtask  key  value\n")
    piped = subprocess.run(["sh", "-c", '"$@" | true', "sh", *command], capture_output=True, text=True, check=False)
    assert (piped.returncode, piped.stderr) == (0, "")
