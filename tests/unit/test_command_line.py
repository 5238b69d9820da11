"""The command line: what it prints, its JSON, exit codes and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.cli import main
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from dsv2.testing import Stop, TestSource

COUNT = StateDeclarations.value_state("count", int, default=0)
PARTS = StateDeclarations.list_state("parts", bytes)
SEEN = StateDeclarations.value_state("seen", datetime)
RATIO = StateDeclarations.value_state("ratio", float)


class Counting(OneInputStreamProcessFunction[str, int]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)


class Keeping(OneInputStreamProcessFunction[str, int]):
    """Keeps values that neither JSON nor CSV has."""

    def uses_states(self) -> Any:
        return [COUNT, PARTS, SEEN, RATIO]

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        states = ctx.state_manager
        states.get_state(COUNT).update(2**62 + 1 if record == "a" else "not a number")
        states.get_state(PARTS).add(b"\xff\x00")
        states.get_state(SEEN).update(datetime(2026, 1, 31, 12, tzinfo=UTC))
        states.get_state(RATIO).update(float("nan") if record == "a" else 0.5)


def savepoint_of(words: str, folder: Path, parallelism: int = 2, function: Any = Counting) -> str:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    stream: Any = env.from_source(TestSource([*words.split(), Stop()]), "words").with_uid("words")
    counts = stream.key_by(str).process(function()).with_uid("counts").with_parallelism(parallelism)
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
    assert lines[-1] == 'words   {"position": 4}'
    code, text = run(capsys, "savepoint", "show", first, "--json")
    shown = json.loads(text)
    assert shown["positions"] == {"words": {"position": 4}}
    assert [operator["operator"] for operator in shown["operators"]] == ["counts", "words"]


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


def test_values_that_json_and_csv_lack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = savepoint_of("a b", tmp_path / "savepoint", function=Keeping)
    expected = {
        "count": ({"a": 2**62 + 1, "b": None}, "4611686018427387905", ""),  # null if it does not fit the type
        "parts": ({"a": ["ff00"], "b": ["ff00"]}, '"[""ff00""]"', '"[""ff00""]"'),
        "seen": (dict.fromkeys("ab", "2026-01-31T12:00:00+00:00"), *["2026-01-31T12:00:00+00:00"] * 2),
        "ratio": ({"a": None, "b": 0.5}, "", "0.5"),
    }
    for state, (values, of_a, of_b) in expected.items():
        code, text = run(capsys, "state", "show", path, "counts", state, "--json")
        assert (code, {row["key"]: row["value"] for row in json.loads(text)}) == (0, values)
        for kind in ("json", "csv"):
            assert run(capsys, "state", "export", path, "counts", state, f"{tmp_path}/x.{kind}")[0] == 0
        rows = map(json.loads, (tmp_path / "x.json").read_text().splitlines())
        assert {row["key"]: row["value"] for row in rows} == values
        lines = dict(line.split(",", 2)[1:] for line in (tmp_path / "x.csv").read_text().splitlines())
        assert lines == {"key": "value", "a": of_a, "b": of_b}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint", "show", "/nowhere", "--conf", "spark.master"], "--conf spark.master: write it as NAME=VALUE."),
        (["savepoint", "show", "/nowhere"], "/nowhere is not a savepoint"),
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


def test_command_without_spark_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "runtime_spark.command_line", None)
    code, text = run(capsys, "checkpoint", "verify", "/nowhere", "--conf", "spark.master=local[1]")
    assert code == 2
    assert text.endswith("Install it with: pip install 'dsv2[spark]'\n")


def test_module_runs_and_stops_quietly_when_its_reader_does(second: str) -> None:
    command = [sys.executable, "-m", "dsv2", "state", "show", second, "counts", "count"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("subtask  key  value\n")
    piped = subprocess.run(["sh", "-c", '"$@" | true', "sh", *command], capture_output=True, text=True, check=True)
    assert piped.stderr == ""
