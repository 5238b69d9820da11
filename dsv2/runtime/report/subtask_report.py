"""The report of a subtask of an operator on a micro-batch, as built-in values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_DEFAULTS: Mapping[str, Any] = {
    "records_in": 0,
    "outputs": (),
    "records_held": 0,
    "watermarks": {},
    "counters": {},
    "gauges": {},
    "histograms": {},
    "keys": 0,
    "timers": 0,
    "event_time": None,
    "user_ns": 0,
    "ended": False,
    "inputs": (),
}


def new_report(
    uid: str, subtask: int, *, records_in: int = 0, outputs: Iterable[int] = (), **values: Any
) -> dict[str, Any]:
    """Return the report of a subtask.

    Args:
        uid: The uid of the operator.
        subtask: The index of the subtask.
        records_in: Number of records received.
        outputs: Number of records emitted to each output.
        values: Other entries: ``records_held``, ``watermarks``, ``counters``, ``gauges``, ``histograms``, ``keys``,
            ``timers``, ``event_time`` (ms), ``user_ns`` (time in user code in the micro-batch), ``ended``, ``inputs``
            (of ``InputGate.report``). What is missing is 0, None or empty.
    """
    return {
        "uid": uid,
        "subtask": subtask,
        **_DEFAULTS,
        "records_in": records_in,
        "outputs": list(outputs),
        **values,
    }


def short(report: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what ``whole`` adds. Reports travel with the rows of each micro-batch, so they should be small."""
    return {name: value for name, value in report.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}


def whole(entry: dict[str, Any]) -> dict[str, Any]:
    """Restore a report that ``short`` has shortened to ``entry``. Other entries are returned unchanged."""
    return {**_DEFAULTS, **entry} if "subtask" in entry and "outputs" in entry else entry
