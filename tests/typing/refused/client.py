"""Mistakes with the state of a running job."""

from __future__ import annotations

from dsv2.client import JobClient
from dsv2.state import StateDeclarations

SUM = StateDeclarations.value_state("sum", int)


def ask(job: JobClient) -> str | None:
    totals = job.state("totals", SUM).with_key_type(str)
    totals.get(1)  # E: arg-type
    totals.items(start=b"a")  # E: arg-type
    job.state("totals", 1)  # E: call-overload
    return totals.get("a")  # E: return-value
