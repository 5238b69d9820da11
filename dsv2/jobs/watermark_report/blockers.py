"""The input and channel of a subtask that hold a watermark back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from dsv2.jobs.progress import ChannelProgress, InputProgress, SubtaskProgress
from dsv2.jobs.summary.event_time import has_ended, is_idle
from dsv2.jobs.watermark_report.model import Cause
from dsv2.jobs.watermark_report.route import Route
from dsv2.plan_view.model import OperatorView
from dsv2.watermark.holders import Order, holders_of_event_time, holders_of_value
from dsv2.watermark.value_text import ShownValue, greatest_shown, least_shown


@dataclass(frozen=True, slots=True)
class Hold:
    """The channel on which a subtask waits.

    Attributes:
        input: The index of the input.
        channel: The channel. None: it is unknown which one.
    """

    input: int
    channel: ChannelProgress | None


@dataclass(frozen=True, slots=True)
class BarrierWaiting:
    """The open round of a barrier in a subtask.

    Attributes:
        value: The id that it waits for.
        since_ms: When the first channel was blocked, in ms since the epoch. None: unknown.
        channels: The number of blocked channels.
    """

    value: ShownValue
    since_ms: int | None
    channels: int


def barrier_waiting(route: Route, report: SubtaskProgress) -> BarrierWaiting | None:
    """Return the open round of a barrier, or None."""
    blocked = [row for one in report.inputs for row in one.channels if row.blocked_by == route.identifier]
    values = [value for row in blocked if (value := route.of_channel(row)) is not None]
    if not route.is_barrier or not values:
        return None
    times = [row.blocked_since_ms for row in blocked if row.blocked_since_ms is not None]
    return BarrierWaiting(least_shown(values), min(times, default=None), len(blocked))


def held_input(
    route: Route, operator: OperatorView, report: SubtaskProgress, *, forwarding: bool = False
) -> InputProgress | Cause:
    """Return the input on which a subtask waits; a cause if it waits on none.

    ``forwarding``: Whether the question is what the operator forwards, instead of what it receives.
    """
    inputs = {one.input: one for one in report.inputs}
    if all(map(has_ended, inputs.values())):
        return Cause.ENDED
    idle = [number for number, one in inputs.items() if is_idle(one)]
    active = [number for number, one in inputs.items() if not is_idle(one) and not has_ended(one)]
    if not active:
        return Cause.IDLE
    if barrier_waiting(route, report) is not None:
        missing = (n for n in active if any(_is_missing(route, row) for row in inputs[n].channels))
        return inputs[next(missing, active[0])]
    values = {number: value for number, one in inputs.items() if (value := route.of_input(one)) is not None}
    if route.is_event_time or (forwarding and route.combines_inputs(operator)):
        found = _holders(route, values, active, idle, None)
    else:
        edges = route.edges_into(operator)
        arriving = [number for number in active if route.arrives(edges[number])]
        if not arriving and route.receives(operator):
            return Cause.IDLE if any(route.arrives(edges[number]) for number in idle) else Cause.ENDED
        found = sorted(arriving or active, key=lambda number: _rank(values.get(number)))
    return inputs[found[0]] if found else Cause.NOTHING


def held_channel(route: Route, one: InputProgress) -> ChannelProgress | None:
    """Return the channel that holds an input back; None if it is unknown."""
    rows = {channel.channel: channel for channel in one.channels}
    values = {number: value for number, row in rows.items() if (value := route.of_channel(row)) is not None}
    active = [number for number, row in rows.items() if not row.idle and not row.ended]
    idle = [number for number, row in rows.items() if row.idle]
    found = _holders(route, values, active, idle, route.of_input(one))
    if not found:
        return None
    is_any = not route.is_event_time and route.order is Order.ANY
    same = [rows[number] for number in found if is_any or values.get(number) == values.get(found[0])]
    return min(same, key=lambda row: row.values_moved_at_ms.get(route.identifier, -1))


def _holders(
    route: Route, values: Mapping[int, ShownValue], active: list[int], idle: list[int], combined: ShownValue | None
) -> Sequence[int]:
    """The inputs or channels that hold their combined value back, by their values."""
    if route.is_event_time:
        return holders_of_event_time(cast(Mapping[int, int], values), active, idle, cast(int | None, combined))
    return holders_of_value(values, active, order=route.order, waits_for_all=route.waits_for_all)


def delivered(route: Route, operator: OperatorView, report: SubtaskProgress) -> Collection[ShownValue]:
    """Return the values that a subtask may have forwarded last, as far as it has received any."""
    inputs = [one for one in report.inputs if not has_ended(one)] or list(report.inputs)
    values: Mapping[int, ShownValue] = {
        one.input: value for one in inputs if (value := route.of_input(one)) is not None
    }
    if route.is_aligned:
        last = report.watermarks.get(route.identifier)
        return [] if last is None else [last]
    if not route.combines_inputs(operator):
        return values.values()
    active = [one.input for one in inputs if not is_idle(one)]
    if not values or ((route.is_event_time or route.waits_for_all) and any(number not in values for number in active)):
        return []
    counted = [values[number] for number in active if number in values] or list(values.values())
    if route.order is Order.ANY:
        return counted
    return [greatest_shown(counted) if route.order is Order.GREATEST else least_shown(counted)]


def _is_missing(route: Route, row: ChannelProgress) -> bool:
    return not row.idle and not row.ended and route.of_channel(row) is None


def _rank(value: ShownValue | None) -> tuple[bool, ShownValue]:
    """The sort key of values. No value comes first."""
    return value is not None, 0 if value is None else value
