"""Streaming jobs on Spark Connect that are changed, asked, cancelled and run together."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.spark_connect import ConnectServer
from tests import ROOT
from tests.spark.connect_streams import KEYS, PER_BATCH, SECONDS, command, counts, is_free, results
from tests.support import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

OFTEN = ("changed:changed",)
NIGHTLY = ("dropped:changed", "asked", "asked_in_one", "cancelled", "together", "replayed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of all clients."""
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def found(connect_server: ConnectServer, folder: Any) -> dict[str, Any]:
    """What the jobs of a client found."""
    return results(connect_server.url, folder, *OFTEN, module="connect_operation")


@pytest.fixture(scope="module")
def found_nightly(connect_server: ConnectServer, folder: Any, found: dict[str, Any]) -> dict[str, Any]:
    """What further jobs of another client found."""
    return results(connect_server.url, folder, *NIGHTLY, module="connect_operation")


def test_changed_program_continues_in_a_new_generation(found: dict[str, Any]) -> None:
    changed, every = found["changed"], counts(3 * PER_BATCH)
    assert changed["files"] == changed["lines"] == changed["collected"] == every
    assert changed["run 1"] == changed["run 2"] == {"generations": 1, "in maps": True}
    for text in ("its parallelism was 2 and is now 3", "the state layout was blob and is now map"):
        assert found["log"].count(text) == 1


@pytest.mark.nightly
def test_state_is_not_dropped(found_nightly: dict[str, Any]) -> None:
    text = r"IncompatibleCheckpointError: .*'count'.*allow_dropped_state"
    assert re.match(text, found_nightly["dropped"], re.DOTALL)


@pytest.mark.nightly
@pytest.mark.parametrize("job", ["asked", "asked_in_one"])
def test_state_of_a_running_job(job: str, found_nightly: dict[str, Any]) -> None:
    asked = found_nightly[job]
    assert asked.pop("status") == "STOPPED"
    assert re.search(r"'counting' has ended\. To read its state, take a savepoint", asked.pop("after"))
    assert asked == {"keys": [0, 1, 2], "equal": True, "sql": [{"keys": KEYS, "equal": True}], "grows": True}


@pytest.mark.nightly
def test_stop_within_a_time_cancels_a_micro_batch(found_nightly: dict[str, Any]) -> None:
    cancelled, every = found_nightly["cancelled"], counts(3 * PER_BATCH)
    assert cancelled["status"] == "STOPPED"
    assert cancelled["files"] == cancelled["lines"] == cancelled["collected"] == every
    assert [call for call in cancelled["heard"] if isinstance(call, str)] == [
        "started",
        "STOPPED",
        "started",
        "FINISHED",
    ]


@pytest.mark.nightly
def test_jobs_at_once(found_nightly: dict[str, Any]) -> None:
    together = found_nightly["together"]
    assert together["status"] == "RUNNING"
    assert re.match(r"UserFunctionError: .*7 is not counted.*counting \(uid 'count'\)", together["failure"], re.DOTALL)
    for job, count in (("waiting", 3 * PER_BATCH), ("quick", 2 * PER_BATCH)):
        assert together[job] == dict.fromkeys(("files", "lines", "collected"), counts(count))


@pytest.mark.nightly
def test_dead_letter_is_processed_again(found_nightly: dict[str, Any]) -> None:
    assert found_nightly["replayed"]["collected"] == counts(PER_BATCH)
    assert found_nightly["replayed"]["statuses"] == ["replayed"]


@pytest.mark.nightly
def test_job_whose_client_has_ended_is_stopped_by_a_file(connect_server: ConnectServer, tmp_path: Path) -> None:
    url, module = connect_server.url, "connect_operation"
    lines = tmp_path / "job/lines"
    with subprocess.Popen(
        command(url, tmp_path, "endless:job", module=module), cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as client:
        wait_until(lambda: bool([*lines.glob("*")]) or client.poll() is not None)
        client.send_signal(signal.SIGINT)
        _, log = client.communicate(timeout=SECONDS)
    assert "Job 'counting' continues on the server of Spark Connect." in log
    refused = results(url, tmp_path, "refused:job", module=module)["refused"]
    found = re.search(
        r"Another driver runs a job .* If its client has ended, create the file (\S+) to stop it", refused
    )
    assert found is not None, refused
    assert f"create the file {found[1]}." in log
    Path(found[1]).touch()
    # The server ends its process with the query. The next start sees that it is gone.
    wait_until(lambda: is_free(tmp_path / "job/checkpoint"))
    taken = results(url, tmp_path, "taken:job", module=module)["taken"]
    assert taken["files"] == taken["lines"] == counts(2 * PER_BATCH)
