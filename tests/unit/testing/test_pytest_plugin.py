"""The plugin of pytest: its fixtures, tests on both runtimes, and runs that do not use it."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests import ROOT
from tests.documents import PROGRAMS
from tests.unit.project.test_import_rules import HEAVY

pytest_plugins = ["pytester"]

PLUGIN = "pytest_dsv2"  # loaded by its name, because the project may have been installed before it had the plugin
TESTS = """
from datetime import timedelta

import pytest

from dsv2 import CollectSink, OneInputStreamProcessFunction
from dsv2.functions import TwoInputBroadcastStreamProcessFunction, TwoOutputStreamProcessFunction
from dsv2.testing import OneInputHarness, Pause, TestSource, TwoInputBroadcastHarness, TwoOutputHarness

closed = []


class Again(OneInputStreamProcessFunction[int, int]):
    def process_record(self, record, output, ctx):
        timers = ctx.processing_time_manager
        timers.register_timer(timers.current_time() + 100)

    def on_processing_timer(self, timestamp, output, ctx):
        output.collect(timestamp)

    def close(self):
        closed.append(self)


class Rules(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    def process_record_from_non_broadcast_input(self, record, output, ctx):
        output.collect(record)

    def process_record_from_broadcast_input(self, record, ctx):
        pass


class Parity(TwoOutputStreamProcessFunction[int, int, int]):
    def process_record(self, record, first, second, ctx):
        (second if record % 2 else first).collect(record)


def test_harnesses_have_one_clock(harness, manual_clock):
    manual_clock.advance(timedelta(milliseconds=5))
    again = harness(Again(), key=abs)
    again.input.push(3)
    again.advance_clock(timedelta(milliseconds=100))
    assert again.output.records == [105]
    assert manual_clock.now_ms() == 105
    assert type(again) is OneInputHarness


def test_kinds(harness):
    assert closed, "the harness of the test before"
    assert type(harness(Parity(), channels=2)) is TwoOutputHarness
    rules = harness(Rules(), key=abs)
    assert type(rules) is TwoInputBroadcastHarness
    rules.non_broadcast_input.push(1)
    assert rules.output.records == [1]


def test_job(env, manual_clock):
    manual_clock.advance(timedelta(days=1))
    sink = CollectSink[int]()
    env.from_source(TestSource[int]([1, Pause(timedelta(hours=1))])).key_by(abs).process(Again()).to_sink(sink)
    env.execute()
    assert sink.results == [86_400_100]


@pytest.mark.both_runtimes
def test_sum(env, tmp_path):
    sink = CollectSink[int]()
    env.from_collection([1, 2, 3]).map(double).to_sink(sink)
    env.execute(checkpoint_location=tmp_path / "checkpoint")
    assert sorted(sink.results) == [2, 4, 6]


@pytest.mark.both_runtimes
def test_session(env):
    pass


def double(number):
    return 2 * number
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makepyfile(TESTS)
    return pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", "--strict-markers", "-rs", *options)


def test_fixtures_without_java(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    result = run(pytester)
    result.assert_outcomes(passed=5, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * Spark needs Java 17 or 21: there is none in JAVA_HOME or on the PATH."])


def test_documented_tests_on_one_runtime(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROGRAMS["docs/testing.md"])
    result = pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider", "--dsv2-runtime", "local")
    result.assert_outcomes(passed=3)  # test_totals, test_total, and test_job on the local runtime


def test_without_pyspark(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['pyspark'] = None")
    result = run(pytester, "--dsv2-runtime", "spark", "-k", "test_sum or test_session")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(['*PySpark, which is not installed. Install it: pip install "dsv2[[]spark]".'])


@pytest.mark.spark
@pytest.mark.nightly  # starts Spark
def test_on_spark(pytester: pytest.Pytester) -> None:
    run(pytester).assert_outcomes(passed=7)


def test_marked_test_that_uses_no_environment(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.both_runtimes\ndef test_nothing(): pass")
    result = pytester.runpytest_subprocess("-p", PLUGIN, "-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*::test_nothing is marked both_runtimes, but does not use env."])


def test_runs_that_do_not_use_it_import_nothing() -> None:
    code = f"import sys, {PLUGIN}; print(*(name for name in {(*HEAVY, 'dsv2')} if name in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "\n"


def test_pytest_loads_it_where_dsv2_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert project["tool"]["setuptools"]["py-modules"] == [PLUGIN]
