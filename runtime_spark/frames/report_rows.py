"""Progress reports as payloads of rows, which bring them to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dsv2.runtime.report.subtask_report import short, whole

SPAN = "span"
"""The entry with the times at which a subtask began and ended a micro-batch, in ms since the epoch."""

_TIMES = (SPAN, "user_ns")


def encode_reports(reports: Iterable[dict[str, Any]]) -> bytes:
    """Return the payload of a row that carries ``reports``."""
    return json.dumps([short(report) for report in reports], separators=(",", ":")).encode()


def decode_reports(payload: bytes) -> list[dict[str, Any]]:
    """Return the reports in the result of ``encode_reports``."""
    return [whole(entry) for entry in json.loads(payload)]


def distinct_reports(payloads: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the reports of tasks some of which may have been repeated. These report the same, but for the times."""
    distinct: dict[str, list[dict[str, Any]]] = {}
    for reports in map(decode_reports, payloads):
        same = [{name: value for name, value in report.items() if name not in _TIMES} for report in reports]
        distinct.setdefault(json.dumps(same), reports)
    return [report for reports in distinct.values() for report in reports]
