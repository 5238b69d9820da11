"""The configuration of a job, without secrets: for the dashboard and the checkpoint."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsv2.base.secrets import HIDDEN, shown_option
from dsv2.graph import Operator, Plan
from dsv2.jobs.handle import RunOptions, Trigger, default_trigger
from dsv2.sinks import Sink
from dsv2.sources import BaseSource
from dsv2.version import __version__

_OURS = ("dsv2.", "runtime_spark.")
_IN_TEXT = re.compile(r"((?:pas+w\w*|pwd|secret\w*|token|api_?key)\s*[=:]\s*)([^\s,;&)}\]]+)", re.IGNORECASE)
_ACCESS_KEY = re.compile(r"access[._-]?key|account[._-]?key|api[._-]?key|\bsas\b|signature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and its value, without secrets."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that belong together."""

    title: str
    settings: tuple[Setting, ...]


def configuration_of(plan: Plan, options: RunOptions, runtime: Mapping[str, str]) -> tuple[Section, ...]:
    """Return the configuration of a job.

    Args:
        plan: The plan of the job.
        options: The arguments of ``execute``.
        runtime: The settings of the runtime, such as those of the Spark session.
    """
    return tuple(
        Section(title, settings)
        for title, found in (
            ("Job", _of_job(plan, options)),
            ("Sources and sinks", _of_connectors(plan)),
            ("Runtime", (redacted(name, value) for name, value in sorted(runtime.items()))),
        )
        if (settings := tuple(found))
    )


def redacted(name: str, value: object) -> Setting:
    """Return a setting, with ``***`` in place of secrets: by its name, or in its value."""
    if _ACCESS_KEY.search(name):
        return Setting(name, HIDDEN)
    return Setting(name, redacted_text(str(shown_option(name, str(value)))))


def redacted_text(text: str) -> str:
    """Return ``text`` with ``***`` in place of passwords and of the users in URLs."""
    return _IN_TEXT.sub(rf"\1{HIDDEN}", str(shown_option("", text)))


def _of_job(plan: Plan, options: RunOptions) -> Iterator[Setting]:
    yield Setting("name", plan.job_name)
    yield Setting("mode", plan.mode.value)
    yield Setting("trigger", _trigger_text(options.trigger or default_trigger(plan)))
    for name, value in (
        ("checkpoint_location", options.checkpoint_location),
        ("savepoint", options.savepoint),
        ("dead_letters", options.dead_letters),
    ):
        if value is not None:
            yield redacted(name, value)
    yield Setting("on_change", options.on_change.value)
    for name, is_set in (
        ("allow_dropped_state", options.allow_dropped_state),
        ("as_new_job", options.as_new_job),
        ("trace_records", options.trace_records),
    ):
        if is_set:
            yield Setting(name, "True")
    yield Setting("dsv2", __version__)
    yield Setting("Python", platform.python_version())


def _of_connectors(plan: Plan) -> Iterator[Setting]:
    for operator in plan.operators:
        if isinstance(operator.body, BaseSource | Sink):
            yield Setting(operator.uid, redacted_text(_connector_text(operator)))


def _connector_text(operator: Operator) -> str:
    """Describe a source or sink. The repr of a user's class may contain anything, so only its name is shown."""
    body, kind = operator.body, type(operator.body)
    target = body.describe_target() if isinstance(body, Sink) else ""
    if target:
        return f"{kind.__qualname__} {target}"
    is_ours = f"{kind.__module__}.".startswith(_OURS) and kind.__repr__ is not object.__repr__
    return repr(body) if is_ours else kind.__qualname__


def _trigger_text(trigger: Trigger) -> str:
    target = "" if trigger.target_batch_ms is None else f", micro-batches of about {trigger.target_batch_ms:,} ms"
    if trigger.interval_ms is None:
        return f"what is available now, then stop{target}"
    return f"every {trigger.interval_ms:,} ms" if trigger.interval_ms else f"without pause{target}"
