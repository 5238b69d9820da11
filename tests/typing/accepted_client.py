"""The state of a running job."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

from dsv2.client import JobClient, RemoteState, StateInfo, connect
from dsv2.state import StateDeclarations


class Place(NamedTuple):
    shop: str
    shelf: int


SUM = StateDeclarations.value_state("sum", int, default=0)
LAST = StateDeclarations.list_state("last", str)
COUNTS = StateDeclarations.map_state("counts", str, int)


def ask(token: str) -> None:
    job = connect("http://127.0.0.1:8050", token=token)
    assert_type(job, JobClient)
    assert_type(job.states(), list[StateInfo])
    assert_type(job.state("totals", SUM).get("a"), int | None)
    assert_type(job.state("totals", LAST).get(1), list[str] | None)
    assert_type(job.state("totals", COUNTS), RemoteState[Any, dict[str, int]])
    assert_type(job.state("totals", SUM).with_key_type(Place).items(), list[tuple[Place, int]])
    assert_type(job.state("totals", "sum").get("a"), Any | None)
