"""The description of the requests: the server answers as it says, also requests that are made up from it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import given
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import dsv2
from dsv2 import ExecutionEnvironment
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.live_state import DEFAULT_ROWS, MOST_ROWS, StateInfo
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import ManualClock
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.actions import PolicyBody, ReplayBody, SavepointBody
from dsv2.views.dashboard.jobs import Status
from dsv2.views.dashboard.live_state import QueryBody
from dsv2.views.dashboard.server import DashboardServer, server_of
from tests import ROOT
from tests.dashboard_client import TOKEN, ask
from tests.profiles import examples
from tests.spans import Item, Spans
from tests.support import wait_until

BEARER = {"Authorization": f"Bearer {TOKEN}"}
CHECKS: list[Any] = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
COUNT = StateDeclarations.value_state("count", int, default=0)
KNOWN = {"operator": "counts", "state": "count", "key": '"a"'}
FILE = ROOT / "dsv2/views/dashboard/static/openapi.json"
DESCRIPTION = json.loads(FILE.read_text(encoding="utf-8").replace("VERSION", dsv2.__version__))
OPERATIONS: list[Any] = [
    found.ok()  # type: ignore[union-attr]  # the description is valid
    for found in schemathesis.openapi.from_dict(DESCRIPTION).get_all_operations()
]
"""The requests that are described."""


class Counting(OneInputStreamProcessFunction[Item, int]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(count.value())


def span_of(item: Item) -> str:
    return item.span


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardServer]:
    dashboard = Dashboard(0, token=TOKEN, allow_actions=True)
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, clock=ManualClock()))
    items = env.from_source(Spans({"a": 5}, bounded=False)).with_uid("in")
    items.key_by(span_of).process(Counting()).with_uid("counts").to_sink(CollectSink[int]()).with_uid("out")
    folder = tmp_path_factory.mktemp("described")
    job = env.execute_async("described", checkpoint_location=folder / "checkpoint", dashboard=dashboard)
    wait_until(lambda: job.progress.batch_id == 0)  # before that there is no state
    running, _ = server_of(dashboard)
    (watched,) = running.board.jobs.values()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watched, "stop", lambda: None)
        patched.setattr(watched, "savepoint", lambda path: path)
        yield running
    job.stop()
    running.close()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.label)
def test_answers_are_as_described(operation: Any, server: DashboardServer) -> None:
    def status_of(case: Any) -> int:
        address = f"http://127.0.0.1:{server.settings.port}"
        return int(case.call_and_validate(address, headers=BEARER, checks=CHECKS).status_code)

    @examples(12)
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        status_of(case)

    check()
    if operation.method == "get":
        query = KNOWN if operation.path.endswith("/rows") else {}
        assert status_of(operation.Case(path_parameters={"job": "1"}, query=query)) == 200


def test_server_has_the_description(server: DashboardServer) -> None:
    assert json.loads(ask(server, "/api/openapi.json", BEARER).body) == DESCRIPTION
    assert ask(server, "/api/openapi.json").status == 401


def test_description_has_the_types_of_the_server() -> None:
    types = (StateInfo, QueryBody, SavepointBody, ReplayBody, PolicyBody)
    _, expected = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = DESCRIPTION["components"]["schemas"]
    assert schemas == {**schemas, **json.loads(json.dumps(expected))}
    assert schemas["Job"]["properties"]["status"]["enum"] == [status.value for status in Status]
    rows = DESCRIPTION["paths"]["/api/jobs/{job}/rows"]["get"]
    (limit,) = (one["schema"] for one in rows["parameters"] if one.get("name") == "limit")
    assert (limit["default"], limit["maximum"]) == (DEFAULT_ROWS, MOST_ROWS)
