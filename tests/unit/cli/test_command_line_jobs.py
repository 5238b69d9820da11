"""The commands ``run``, ``explain`` and ``check``: what they print, exit codes, configuration and errors."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2.cli import job, main
from dsv2.cli.main import new_parser
from dsv2.jobs.progress_log import read_job
from tests import ROOT
from tests.durations import LONG

Run = Callable[..., tuple[int, str, str]]

JOBS = '''
"""Pipelines."""
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from dsv2 import ExecutionEnvironment, PrintSink, new_builder
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sources import DataGeneratorSource


def numbers(env: ExecutionEnvironment, limit: int = 3, prefix: str | None = None) -> None:
    env.from_collection(range(limit)).map(str).with_uid("texts").to_sink(PrintSink(prefix or ""))


def typed(
    env: ExecutionEnvironment, a: float, b: bool, c: Literal["x", "y"], d: Path, e: timedelta, **more: int
) -> None:
    env.from_collection([repr((a, b, c, d, e, more))]).to_sink(PrintSink())


def shown(env: ExecutionEnvironment, **settings: Any) -> None:
    env.from_collection([f"{env.parallelism} {env.execution_mode.value} {settings}"]).to_sink(PrintSink())


def fails_at_run_time(env: ExecutionEnvironment) -> None:
    env.from_collection([0]).map(lambda number: 1 // number).to_sink(PrintSink())


def cannot_be_built(env: ExecutionEnvironment) -> None:
    env.from_collection([0]).with_uid("same").to_sink(PrintSink()).with_uid("same")


def mistaken(env: ExecutionEnvironment) -> None:
    env.from_collection([0]).process(3)  # type: ignore[call-overload]


def raises(env: ExecutionEnvironment) -> None:
    raise LookupError("no such table")


def executes(env: ExecutionEnvironment) -> None:
    env.from_collection(["ran"]).to_sink(PrintSink())
    env.execute()


def nothing(env: ExecutionEnvironment) -> None:
    pass


def takes_nothing() -> None:
    pass


def of_spark(env: ExecutionEnvironment) -> None:
    class Frame:
        isStreaming = False

    env.from_dataframe(Frame(), dict).to_sink(PrintSink())


class Waits(OneInputStreamProcessFunction[int, int]):
    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> Any: ...


def warned(env: ExecutionEnvironment) -> None:
    env.from_collection([0]).process(Waits()).to_sink(PrintSink())


def slow(env: ExecutionEnvironment) -> None:
    def wait(number: int) -> int:
        import signal
        import time
        noted = signal.getsignal(signal.SIGINT).__self__
        for interrupts in range(3):
            while noted.interrupts < interrupts:
                time.sleep(0.001)
            print("interrupts", interrupts, flush=True)
        time.sleep(600)
        return number

    env.from_collection([0]).map(wait).to_sink(PrintSink())


def endless(env: ExecutionEnvironment) -> None:
    numbers = env.from_source(DataGeneratorSource(abs, records_per_second=100)).with_uid("numbers")
    numbers.to_sink(PrintSink()).with_uid("printed")


value = 3


def closing(env: ExecutionEnvironment) -> None:
    class Closing(OneInputStreamProcessFunction):
        def declare_watermarks(self):
            return [new_builder("closed").type_long().build()]

        def process_record(self, record, output, ctx): ...

    env.set_parallelism(2)
    numbers = env.from_collection([0]).map(abs).process(Closing())
    numbers.shuffle().map(abs).with_uid("after").to_sink(PrintSink())


def logs(env: ExecutionEnvironment) -> None:
    import logging
    import sys
    import warnings

    def log(number: int) -> int:
        logging.getLogger("shop").warning("negative price", extra={"price": number})
        return number

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("an old name")
    print("two\\nlines", file=sys.stderr)
    env.from_collection([-5]).with_uid("in").map(log).with_uid("check").to_sink(PrintSink()).with_uid("out")
'''


SCRIPT = """
from dsv2 import ExecutionEnvironment, PrintSink

env = ExecutionEnvironment.get_instance(runtime="local")
env.from_collection([1]).to_sink(PrintSink("ran"))
env.execute_async() if __name__ == "script" else env.execute()


def pipeline(env):
    own = ExecutionEnvironment.get_instance(runtime="local")
    own.from_collection([1]).to_sink(PrintSink("ran"))
    own.execute()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command in a directory with the module ``jobs``, on the local runtime."""
    (tmp_path / "jobs.py").write_text(textwrap.dedent(JOBS))
    (tmp_path / "spoiled.py").write_text("def f(:\n")
    (tmp_path / "lacking.py").write_text("import there_is_no_such_module\n")
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in os.environ if name.startswith("DSV2_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DSV2_RUNTIME", "local")
    for module in ("jobs", "spoiled", "lacking", "script"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.invalidate_caches()

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield call
    for module in ("jobs", "spoiled", "lacking", "script"):
        sys.modules.pop(module, None)


def test_run_prints_the_result(run: Run) -> None:
    code, out, err = run("run", "jobs:numbers", "--set", "limit=2", "--set", "prefix=a=b")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == ["a=b> 0", "a=b> 1", "The job 'numbers' has finished."]
    assert ["texts", "2", "2"] in map(str.split, out.splitlines())


def test_run_prints_json(run: Run) -> None:
    _, out, _ = run("run", "jobs:numbers", "--set", "limit=0", "--json")
    shown = json.loads(out)
    assert (shown["status"], shown["batch_id"]) == ("FINISHED", 0)
    assert {"operator": "texts", "records in": 0, "records out": 0} in shown["operators"]


def test_settings_have_the_types_of_the_parameters(run: Run) -> None:
    settings = ["a=1.5", "b=true", "c=y", "d=/tmp", "e=PT1M", "more=7"]
    _, out, _ = run("run", "jobs:typed", *(part for each in settings for part in ("--set", each)))
    expected = "(1.5, True, 'y', PosixPath('/tmp'), datetime.timedelta(seconds=60), {'more': 7})"
    assert out.splitlines()[0] == expected


ERRORS = [
    ("jobs:numbers --set limit=x", "The setting limit=x is invalid: Expected `int`, got `str`."),
    ("jobs:numbers --set size=3", "jobs:numbers has no setting 'size'. Its settings: limit, prefix."),
    ("jobs:numbers --set limit", "--set limit: write it as NAME=VALUE."),
    ("jobs:typed --set a=1", "jobs:typed needs more settings: --set b=... --set c=... --set d=... --set e=..."),
    ("jobs:numbers --parallelism 0", "In the command line: Expected `int` >= 1 - at `$.parallelism`"),
    ("jobs", "'jobs' is not a pipeline. Write it as MODULE:FUNCTION"),
    ("jobs:other", "jobs has no function 'other'. It has: numbers, typed, shown,"),
    ("jobs:value", "jobs:value is not a function, but int."),
    ("jobs.more:f", "There is no module 'jobs.more'"),
    ("no_such_package.jobs:f", "There is no module 'no_such_package', neither in"),
    ("lacking:f", "No module named 'there_is_no_such_module'\n  File \"{here}/lacking.py\", line 1"),
    ("spoiled:f", 'File "{here}/spoiled.py", line 1'),
    ("jobs:raises", "LookupError: no such table\n  File \"{here}/jobs.py\", line 39, in raises"),
    ("jobs:mistaken", "PlanError: process at {here}/jobs.py:35 takes a process function"),
    ("jobs:cannot_be_built", "Two operators have the uid 'same'"),
    ("jobs:executes", "The function must only build the pipeline. Remove execute from it."),
    ("jobs:takes_nothing", "jobs:takes_nothing must take the environment: def takes_nothing(env: ExecutionEnv"),
    ("jobs:nothing", "jobs:nothing has built nothing."),
    ("jobs:of_spark", "is a DataFrame, which only Spark can read"),
    ("jobs:numbers --checkpoint s3://c", "s3://c is not on the local disk"),
    ("jobs:numbers --config nowhere.toml", "The configuration file nowhere.toml cannot be read"),
    ("jobs:numbers --conf spark.master", "--conf spark.master: write it as NAME=VALUE."),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), ERRORS, ids=[arguments for arguments, _ in ERRORS])
def test_errors_say_what_is_wrong_without_a_traceback(run: Run, tmp_path: Path, arguments: str, message: str) -> None:
    code, out, err = run("run", *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("dsv2: ")
    assert message.format(here=tmp_path) in err
    assert "Traceback" not in err
    assert "site-packages" not in err


def test_failed_job_names_the_users_line(run: Run, tmp_path: Path) -> None:
    code, out, err = run("run", "jobs:fails_at_run_time")
    assert (code, out) == (1, "The job 'fails at run time' has failed.\n")
    assert err.startswith("dsv2: UserFunctionError: ZeroDivisionError")
    assert f'File "{tmp_path}/jobs.py", line 27, in <lambda>' in err
    assert "Traceback" not in err


def shown(run: Run, *arguments: str) -> str:
    code, out, err = run("run", "jobs:shown", *arguments)
    assert (code, err) == (0, "")
    return out.splitlines()[0]


def test_command_line_overrides_environment_and_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(run) == "1 streaming {}"
    (tmp_path / "dsv2.toml").write_text(
        """
        runtime = "spark"
        checkpoint = "not used by a local run"
        parallelism = 2
        mode = "batch"
        [settings]
        a = 1
        b = 1
        c = 1
        d = [1]
        [pipelines."jobs:shown"]
        settings = { b = 2, c = 2 }
        parallelism = 3
        [pipelines."jobs:numbers"]
        parallelism = 9
        """
    )
    assert shown(run) == "3 batch {'a': 1, 'b': 2, 'c': 2, 'd': [1]}"
    monkeypatch.setenv("DSV2_PARALLELISM", "4")
    monkeypatch.setenv("DSV2_SET_C", "3")
    assert shown(run) == "4 batch {'a': 1, 'b': 2, 'c': '3', 'd': [1]}"
    options = ["--parallelism", "5", "--mode", "automatic", "--set", "c=4"]
    assert shown(run, *options) == "5 automatic {'a': 1, 'b': 2, 'c': '4', 'd': [1]}"
    (tmp_path / "other.toml").write_text("parallelism = 6")
    monkeypatch.delenv("DSV2_PARALLELISM")
    monkeypatch.setenv("DSV2_CONFIG", "other.toml")
    assert shown(run) == "6 streaming {'c': '3'}"
    assert shown(run, "--config", "dsv2.toml") == "3 batch {'a': 1, 'b': 2, 'c': '3', 'd': [1]}"


def test_local_job_has_the_checkpoint_that_is_configured_for_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, wanted = tmp_path / "dsv2.toml", list[str]()

    def check(*checkpoint: str) -> None:
        wanted.extend(checkpoint)
        assert run("run", "jobs:numbers")[0] == 0
        assert sorted(place.parent.name for place in tmp_path.glob("*/local")) == sorted(wanted)

    monkeypatch.delenv("DSV2_RUNTIME")
    file.write_text("runtime = 'local'\ncheckpoint = 'file'")
    check("file")
    file.write_text("checkpoint = 'all'\n[pipelines.'jobs:numbers']\nruntime = 'local'\ncheckpoint = 'own'")
    check("own")
    monkeypatch.setenv("DSV2_CHECKPOINT", "variable")
    check("variable")
    monkeypatch.delenv("DSV2_CHECKPOINT")
    monkeypatch.setenv("DSV2_RUNTIME", "local")
    file.write_text("runtime = 'spark'\ncheckpoint = 'spark'")
    check()


def local_setting(checkpoint: Path, name: str) -> str:
    """A setting of the local runtime in a checkpoint."""
    job = read_job(checkpoint)
    assert job is not None
    return {one.name: one.value for part in job.configuration for one in part.settings}[name]


@pytest.mark.parametrize(("options", "checks"), [([], False), (["--checks"], True)])
def test_checks_of_the_local_runtime_are_for_tests(run: Run, tmp_path: Path, options: list[str], checks: bool) -> None:
    assert run("run", "jobs:numbers", "--checkpoint", "stored", *options)[0] == 0
    assert local_setting(tmp_path / "stored", "checks") == str(checks)


def test_memory_budget(run: Run, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    assert run("run", "jobs:numbers", "--checkpoint", "stored", "--available-now", "--runtime", "local")[0] == 0
    assert local_setting(stored, "memory_budget") == "256 MB"
    assert run("run", "jobs:numbers", "--checkpoint", "stored", "--runtime", "local", "--memory-budget", "7")[0] == 0
    assert local_setting(stored, "memory_budget") == "7 MB"
    assert "memory_budget" in run("run", "jobs:numbers", "--runtime", "local", "--memory-budget", "-1")[2]


def test_restarts_after_failures(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = tmp_path / "stored"
    assert run("run", "jobs:numbers", "--checkpoint", "stored")[0] == 0
    assert local_setting(stored, "restarts") == "none"
    (tmp_path / "dsv2.toml").write_text("restarts = 4")
    assert run("run", "jobs:numbers", "--checkpoint", "stored")[0] == 0
    assert local_setting(stored, "restarts") == "4 within 0:10:00, after 0:00:01 to 0:01:00"
    assert run("run", "jobs:numbers", "--checkpoint", "stored", "--restarts", "5")[0] == 0
    assert local_setting(stored, "restarts").startswith("5 within")
    assert "restarts=... requires a checkpoint_location" in run("run", "jobs:numbers")[2]
    monkeypatch.setenv("DSV2_RUNTIME", "spark")
    assert "restarts requires the local runtime" in run("run", "jobs:numbers")[2]


def test_standard_error_as_json(run: Run) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers), sys.stderr
    code, out, err = run("run", "jobs:logs", "--name", "prices", "--log-format", "json", "--dashboard", "0")
    records = [json.loads(line) for line in err.splitlines()]
    assert (code, out.splitlines()[0]) == (0, "-5")
    fields = ("level", "logger", "message", "job", "operator", "subtask", "price")
    assert [tuple(record.get(name) for name in fields) for record in records if record["logger"] == "shop"] == [
        ("WARNING", "shop", "negative price", "prices", "check", 0, -5)
    ]
    of_command = [record for record in records if record["logger"] == "dsv2.cli"]
    assert [record["message"] for record in of_command][-1] == "two\nlines"
    assert of_command[0]["message"].startswith("Dashboard: http://")
    assert {(record["level"], record["job"]) for record in of_command} == {("INFO", "prices")}
    assert "an old name" in next(record["message"] for record in records if record["logger"] == "py.warnings")
    assert all(record["time"].endswith("+00:00") for record in records)
    assert (root.level, list(root.handlers), sys.stderr) == before


def test_errors_as_json(run: Run) -> None:
    code, _, err = run("run", "jobs:fails_at_run_time", "--log-format", "json")
    record = json.loads(err)
    assert (code, record["level"], record["job"]) == (1, "ERROR", "fails at run time")
    assert "UserFunctionError: ZeroDivisionError" in record["exception"]
    code, _, err = run("run", "jobs:none", "--log-format", "json")
    record = json.loads(err)
    assert (code, record["level"]) == (2, "ERROR")
    assert record["message"].startswith("jobs has no function 'none'.")


def test_settings_for_all_pipelines_may_be_unknown_to_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dsv2.toml").write_text("settings = { elsewhere = 1 }")
    monkeypatch.setenv("DSV2_SET_ANYWHERE", "2")
    assert run("run", "jobs:numbers")[0] == 0
    (tmp_path / "dsv2.toml").write_text("[pipelines.'jobs:numbers'.settings]\nelsewhere = 1")
    assert "has no setting 'elsewhere'" in run("run", "jobs:numbers")[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("colour = 1", "In the configuration file dsv2.toml: Object contains unknown field `colour`"),
        ("parallelism = 'many'", "Expected `int | null`, got `str` - at `$.parallelism`"),
        ("runtime = 'flink'", "Invalid enum value 'flink' - at `$.runtime`"),
        ("= 3", "The configuration file dsv2.toml cannot be read: Invalid"),
        ("\xff", "The configuration file dsv2.toml cannot be read"),
        ("[pipelines.'jobs:nubmers']", "[pipelines.'jobs:nubmers']: jobs has no function 'nubmers'. It has: numbers,"),
        ("[pipelines.'jbos:numbers']", "[pipelines.'jbos:numbers']: There is no module 'jbos'."),
        ("[pipelines.numbers]", "[pipelines.'numbers']: Write it as MODULE:FUNCTION."),
    ],
)
def test_mistakes_in_the_file_are_named(run: Run, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "dsv2.toml").write_bytes(content.encode("latin-1"))
    code, _, err = run("run", "jobs:numbers")
    assert code == 2
    assert message in err


def test_mistake_in_the_environment_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV2_MODE", "later")
    assert "In the environment variables: Invalid enum value 'later' - at `$.mode`" in run("run", "jobs:numbers")[2]


def test_explain_prints_or_writes_the_plan(run: Run, tmp_path: Path) -> None:
    code, out, err = run("explain", "jobs:numbers")
    assert (code, err) == (0, "")
    assert out.startswith("numbers: streaming, 3 operators, 1 level, 1 exchange\n\nSources\n")
    assert "jobs.py:13" in out
    assert json.loads(run("explain", "jobs:numbers", "--format", "json")[1])["job_name"] == "numbers"
    assert run("explain", "jobs:numbers", "--output", "plan.svg") == (0, "The plan is in plan.svg.\n", "")
    assert (tmp_path / "plan.svg").read_text().startswith("<svg ")
    assert run("explain", "jobs:numbers", "--output", "plan.md", "--format", "mermaid")[0] == 0
    assert (tmp_path / "plan.md").read_text().startswith("flowchart TB\n")
    code, _, err = run("explain", "jobs:numbers", "--output", "plan.xyz")
    assert (code, "plan.xyz has no known format" in err) == (2, True)
    assert "nowhere/plan.svg" in run("explain", "jobs:numbers", "--output", "nowhere/plan.svg")[2]


def test_explain_shows_channels(run: Run, tmp_path: Path) -> None:
    code, out, err = run("explain", "jobs:closing", "--channels")
    assert (code, err) == (0, "")
    assert out.startswith("closing: channels\n")
    assert "    subtask 0 to 0, 1\n    subtask 1 to 0, 1\n" in out
    assert run("explain", "jobs:closing", "--channels", "closed")[1].startswith("closing: channels of closed\n")
    only = run("explain", "jobs:closing", "--channels", "closed", "--operator", "after")[1]
    assert only.startswith("closing: channels into after of closed\n")
    assert run("explain", "jobs:closing", "--channels", "closed", "--output", "closed.svg")[0] == 0
    assert 'data-channel="2.1-3.0-0"' in (tmp_path / "closed.svg").read_text()
    code, _, err = run("explain", "jobs:closing", "--channels", "open")
    assert (code, "declares no watermark 'open'. Its watermarks: 'closed'." in err) == (2, True)
    code, _, err = run("explain", "jobs:closing", "--channels", "closed", "--format", "json")
    assert (
        code,
        "format must be one of 'text', 'mermaid', 'svg', or a member of ChannelFormat, not 'json'" in err,
    ) == (2, True)
    code, _, err = run("explain", "jobs:closing", "--operator", "after")
    assert (code, "--operator requires --channels" in err) == (2, True)
    code, out, _ = run("explain", "jobs:cannot_be_built", "--channels", "--operator", "same")
    assert (code, "cannot be built\n\nError\n" in out) == (1, True)


@pytest.mark.parametrize("name", ["mistaken", "raises", "executes"])
def test_explain_and_check_of_a_function_that_raises(run: Run, name: str) -> None:
    code, out, err = run("explain", f"jobs:{name}")
    assert (code, out) == (1, "")
    assert "jobs.py" in err
    code, out, err = run("check", f"jobs:{name}", "--no-types")
    assert (code, err) == (1, "")
    assert out.endswith(f"\njobs:{name}: has errors\n")


def test_invalid_pipeline_is_explained_and_fails_the_check(run: Run) -> None:
    code, out, _ = run("explain", "jobs:cannot_be_built")
    assert code == 1
    assert "cannot be built\n\nError\n  ConfigurationError: Two operators have the uid 'same'" in out
    code, out, _ = run("check", "jobs:cannot_be_built", "--no-types", "--json")
    assert code == 1
    (problem,) = json.loads(out)["problems"]
    assert problem.startswith("ConfigurationError: Two operators have the uid 'same'")


def test_check_fails_if_the_runtime_would_refuse(run: Run) -> None:
    assert "Error: ConfigurationError: The source" in run("check", "jobs:of_spark", "--no-types")[1]
    assert run("check", "jobs:of_spark", "--no-types")[0] == 1
    assert run("check", "jobs:numbers", "--no-types")[:2] == (0, "jobs:numbers: no errors\n")


def test_warnings_fail_only_a_strict_check(run: Run) -> None:
    code, out, _ = run("check", "jobs:warned", "--no-types")
    assert (code, "[handler-never-called]" in out) == (0, True)
    assert run("check", "jobs:warned", "--no-types", "--strict")[0] == 1
    assert run("check", "jobs:numbers", "--no-types", "--strict")[0] == 0


def test_check_reports_what_mypy_finds(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(code: int, text: str) -> None:
        def call(command: Any, **options: Any) -> Any:
            assert command[-2:] == ["-m", "jobs"]
            return subprocess.CompletedProcess(command, code, text, "")

        monkeypatch.setattr("dsv2.cli.job.subprocess.run", call)

    checked(1, "jobs.py:1: error: wrong\n")
    code, out, _ = run("check", "jobs:numbers")
    assert (code, out) == (1, "Types: jobs.py:1: error: wrong\njobs:numbers: has errors\n")
    checked(0, "Success\n")
    assert run("check", "jobs:numbers")[:2] == (0, "Types: Success\njobs:numbers: no errors\n")
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    assert "Types were not checked: mypy is not installed" in run("check", "jobs:numbers")[1]
    assert json.loads(run("check", "jobs:numbers", "--json")[1])["types"] == "not checked"


def test_explaining_for_spark_needs_no_session(run: Run) -> None:
    out = run("explain", "jobs:numbers", "--runtime", "spark", "--parallelism", "3")[1]
    assert "Runtime: Spark\n  tasks per level: 3\n" in out


@pytest.mark.parametrize(
    ("module", "settings"),
    [("word_count", ["--set=callables=true"]), ("sales", []), ("hot_topics", ["--set=tweets=10000", "--set=lazy=1"])],
)
def test_examples_run_from_the_command_line(
    module: str, settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check", f"examples.{module}:pipeline", "--no-types", "--strict"]) == 0
    capsys.readouterr()
    assert main(["run", f"examples.{module}:pipeline", "--runtime", "local", *settings]) == 0
    assert "has finished." in capsys.readouterr().out


@pytest.fixture
def running(tmp_path: Path, run: Run) -> Callable[..., subprocess.Popen[str]]:
    """Starts ``dsv2 run`` with a pipeline of ``jobs``, and returns when that has printed a line."""

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dsv2", "run", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process

    return start


def test_ctrl_c_stops_a_local_job_and_says_how_to_continue(running: Callable[..., subprocess.Popen[str]]) -> None:
    arguments = ["jobs:endless", "--checkpoint", "the checkpoint"]
    with running(*arguments) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert "The job 'endless' has stopped.\n" in out
    stopped = r"^Stopped after micro-batch [\d,]+\. To continue:\n  (.+)\n\Z"  # a slow start may show progress before
    assert re.findall(stopped, err, re.MULTILINE) == ["python -m dsv2 run jobs:endless --checkpoint 'the checkpoint'"]


def test_sigterm_stops_a_job_with_success(running: Callable[..., subprocess.Popen[str]]) -> None:
    with running("jobs:endless") as process:
        process.terminate()
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == 0
    assert "To continue" not in err


def test_third_ctrl_c_ends_a_job_that_blocks(running: Callable[..., subprocess.Popen[str]]) -> None:
    with running("jobs:slow") as process:
        assert process.stdout is not None
        for number in (1, 2):
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == f"interrupts {number}\n"  # signals of one kind that wait are one
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_for_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab", reason="shtab is not installed")
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", shell])
    assert ended.value.code is None or ended.value.code == 0
    assert "--checkpoint" in capsys.readouterr().out


def test_completion_names_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert ended.value.code == 2
    assert "pip install 'dsv2[cli]'" in capsys.readouterr().err


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands that do something, not groups of them."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for command in group.choices.values():
            yield from commands(command)


@pytest.mark.parametrize("command", [command.prog for command in commands(new_parser())])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split()[1:], "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    (shown,) = re.findall(r"^examples:\n((?:  dsv2 .*\n)+)", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 120
    for example in shown.splitlines():
        assert example.strip().startswith(f"{command} ")
        new_parser().parse_args(shlex.split(example)[1:])


@pytest.mark.parametrize("command", ["run", "explain", "check --no-types"])
def test_job_at_the_top_level_of_a_module_does_not_run(run: Run, tmp_path: Path, command: str) -> None:
    code, out, err = run(*command.split(), "script:pipeline", "--runtime", "local")
    said = f"execute at {tmp_path}/script.py:6: dsv2 only imports script, and runs no job of it. Call execute in a fun"
    assert code != 0
    assert said in out + err
    assert "ran>" not in out


def test_function_cannot_run_a_job_of_its_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT).replace("env.execute", "env.explain", 1))
    text = (tmp_path / "script.py").read_text().replace("env.explain_async() if", "None if")
    (tmp_path / "script.py").write_text(text)
    code, out, err = run("explain", "script:pipeline", "--runtime", "local")
    assert (code, out) == (1, "")
    assert f"execute at {tmp_path}/script.py:12: The function must only build the pipeline." in err


def test_tables_of_other_pipelines_may_belong_to_other_machines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dsv2.toml").write_text("[pipelines.'elsewhere.jobs:f']\n[pipelines.'jobs:numbers']\nname = 'x'")
    assert run("run", "jobs:numbers")[0] == 0
