"""Streaming jobs on Spark Connect: clients and servers in processes of their own, which tests kill."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.spark_connect import ConnectServer
from storms.common.processes import Gate
from tests import ROOT
from tests.spark.connect_streams import PER_BATCH, SECONDS, command, counts, is_free, results

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

OFTEN = ("whole:files", "restarted:files", "idle:files", "failure", "through", "streaming_dataframe", "elsewhere")
NIGHTLY = (
    *("stopped:stop", "continued:stop", "failure:again", "repeated_failure:again", "skipped:again"),
    *("letters", "failing_sink:sink", "repaired:sink"),
)


@pytest.fixture(scope="module")
def found(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the jobs of a client found."""
    return results(connect_server.url, tmp_path_factory.mktemp("client"), *OFTEN)


@pytest.fixture(scope="module")
def found_nightly(connect_server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What further jobs of a client found."""
    return results(connect_server.url, tmp_path_factory.mktemp("client"), *NIGHTLY)


def test_job_with_all_kinds_of_sinks(found: dict[str, Any]) -> None:
    first = found["whole"]
    every = counts(2 * PER_BATCH)
    assert first["files"] == first["lines"] == first["collected"] == every
    assert first["in"] == len(every)
    assert (first["heard"][0], first["heard"][-1]) == ("started", "FINISHED")
    assert first["heard"][1:-1] == first["stored"] == [*range(len(first["stored"]))]


def test_restart_continues_state_and_output(found: dict[str, Any]) -> None:
    before, after = found["whole"], found["restarted"]
    assert after["files"] == after["lines"] == counts(3 * PER_BATCH)
    assert sorted([*before["collected"], *after["collected"]]) == counts(3 * PER_BATCH)
    assert after["status"] == "FINISHED"


def test_start_without_new_input(found: dict[str, Any]) -> None:
    idle, every = found["idle"], counts(3 * PER_BATCH)
    assert idle["files"] == idle["lines"] == every
    assert (idle["collected"], idle["heard"]) == ([], ["started", "FINISHED"])
    assert idle["at_start"].keys() >= {"in", "count", "collected", "files", "lines"}


def test_error_names_operator_and_record(found: dict[str, Any]) -> None:
    text = r"UserFunctionError: ValueError: 7 is not counted.*counting \(uid 'count'\).*key: +1\s+record: +7\s"
    assert re.search(text, found["failure"], re.DOTALL)
    assert "To continue, do one of these:" in found["failure"]
    assert "Python worker" not in found["failure"]


@pytest.mark.nightly
def test_record_is_skipped(found_nightly: dict[str, Any]) -> None:
    every = counts(2 * PER_BATCH)
    every.remove([1, 4])
    assert found_nightly["skipped"]["files"] == found_nightly["skipped"]["lines"] == every
    assert "RecordNotSkippedWarning" not in found_nightly["log"]


@pytest.mark.nightly
def test_stop_savepoint_and_second_job(found_nightly: dict[str, Any]) -> None:
    stopped = found_nightly["stopped"]
    assert stopped.pop("second").startswith("ConfigurationError: Another driver runs a job with the checkpoint ")
    assert stopped.pop("status") == "STOPPED"
    assert stopped.pop("heard") == ["started", "STOPPED"]
    assert stopped == dict.fromkeys(stopped, True)


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ("through", "ConfigurationError: 'counting' uses through_dataframe, which requires internals"),
        ("streaming_dataframe", r"ConfigurationError: The source .* is a streaming DataFrame\. On Spark Connect"),
        ("elsewhere", r"ConfigurationError: .*hdfs://127\.0\.0\.1:1/checkpoint is not on the local disk\."),
    ],
)
def test_refused(job: str, text: str, found: dict[str, Any]) -> None:
    assert re.match(text, found[job], re.DOTALL)


@pytest.mark.nightly
def test_start_from_a_savepoint(found_nightly: dict[str, Any]) -> None:
    assert found_nightly["continued"] == {"continues": True}


@pytest.mark.nightly
def test_repeated_failure_names_the_position(found_nightly: dict[str, Any]) -> None:
    assert "position: source 'in', split 0, offset 7" in found_nightly["repeated_failure"]


@pytest.mark.nightly
def test_dead_letters_are_in_the_checkpoint(found_nightly: dict[str, Any]) -> None:
    assert found_nightly["letters"] == ["4"]


@pytest.mark.nightly
def test_sink_in_the_client_fails_the_job_and_loses_nothing(found_nightly: dict[str, Any]) -> None:
    text = r"JobError: The function of the sink on driver .*raised on batch 0: OSError: the disk is full"
    assert re.match(text, found_nightly["failing_sink"], re.DOTALL)
    every = counts(2 * PER_BATCH)
    assert found_nightly["repaired"] == {"files": every, "lines": every, "collected": every}


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a phase of a job."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def client_at_gate(url: str, folder: Path) -> Iterator[Gate]:
    """Run a client until its second micro-batch waits at a gate. Kill the client at the end."""
    (folder / "job").mkdir()
    gate = Gate(folder / "job", "counting")
    gate.shut()
    client = subprocess.Popen(command(url, folder, "gated:job"), cwd=ROOT)
    try:
        wait_until(lambda: gate.waiting is not None or client.poll() is not None)
        yield gate
    finally:
        client.kill()
        client.wait()


def check_exactly_once(found: dict[str, Any]) -> None:
    """Check the output of all runs, and that the sink of the last client has what no other client has received."""
    every = counts(3 * PER_BATCH)
    assert found["files"] == found["lines"] == every
    missing = [one for one in every if one not in found["collected"]]
    assert len(found["collected"]) + len(missing) == len(every)
    assert missing in ([], counts(PER_BATCH))


@pytest.mark.nightly
def test_job_goes_on_without_its_client(connect_server: ConnectServer, tmp_path: Path) -> None:
    with client_at_gate(connect_server.url, tmp_path) as gate:
        pass
    refused = results(connect_server.url, tmp_path, "refused:job")["refused"]
    assert refused.startswith("ConfigurationError: Another driver runs a job with the checkpoint ")
    gate.open()
    wait_until((tmp_path / "job/checkpoint/commits/2").exists)
    wait_until(lambda: is_free(tmp_path / "job/checkpoint"))
    check_exactly_once(results(connect_server.url, tmp_path, "gated:job")["gated"])


@pytest.mark.nightly
def test_job_continues_on_a_restarted_server(spark_python: str, tmp_path: Path) -> None:
    server = ConnectServer(tmp_path, spark_python)
    server.start()
    try:
        with client_at_gate(server.url, tmp_path) as gate:
            server.kill()
        gate.open()
        server.start()
        check_exactly_once(results(server.url, tmp_path, "gated:job")["gated"])
    finally:
        server.stop()
