"""The report of an input on its channels. Its size does not depend on their number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner import Combiner
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, PROCESSING_TIME, USE_PROCESSING_TIME
from dsv2.watermark.holders import holders_of_event_time, holders_of_value, order_of
from dsv2.watermark.value_text import shown_value

ALL_CHANNELS: Final = 16
"""With more channels only those that hold a watermark back are reported."""

InputReport: TypeAlias = dict[str, Any]
"""``count``, ``idle`` and ``ended`` (numbers of channels), ``time`` (event time), ``values`` (by identifier), and
``channels``: lists of channel, status, event time and values. ``blocked``, if the input waits for another one.
``held``: lists of a channel that is blocked by an aligned watermark, its identifier, the number of records behind it,
and since when, in ms, if it is a barrier. Zeros, and what there is not, are left out, also at the end of lists."""

_HOLDERS = 4  # of each watermark
_MOST_HOLDERS = 16
_ACTIVE, _IDLE, _ENDED = 0, 1, 2


def input_report(
    channels: int,
    combiners: Mapping[str, Combiner],
    declarations: Mapping[str, WatermarkDeclaration],
    idle: Collection[int],
    ended: Collection[int],
    *,
    blocked: bool,
    held: Mapping[int, tuple[str, int]],
) -> InputReport:
    """Report the channels of one input.

    Args:
        channels: The number of channels, former ones included.
        combiners: The combiners by identifier.
        declarations: The declarations by identifier.
        idle: The idle channels.
        ended: The channels that have ended.
        blocked: Whether the input waits for another one.
        held: For each channel that is blocked, the identifier of the aligned watermark and the number of records.
    """
    sent = {identifier: combiner.sent() for identifier, combiner in combiners.items()}
    combined = {identifier: combiner.combined for identifier, combiner in combiners.items()}
    numbers: Collection[int] = range(channels)
    held_rows = [] if blocked or not held else _held(held, combiners)
    if channels > ALL_CHANNELS:
        active = [channel for channel in numbers if channel not in idle and channel not in ended]
        holders = _holders(combiners, declarations, sent, combined, active, idle)
        numbers = sorted({*holders, *(row[0] for row in held_rows)})
    counts = {"count": channels, "idle": len(idle), "ended": len(ended), "blocked": blocked}
    return {
        **{name: count for name, count in counts.items() if count},
        **_values(combined),
        "channels": [_channel(number, sent, idle, ended) for number in numbers],
        **({"held": held_rows} if held_rows else {}),
    }


def _held(held: Mapping[int, tuple[str, int]], combiners: Mapping[str, Combiner]) -> list[list[Any]]:
    """The channels that have been blocked for the longest time."""
    rows: list[list[Any]] = []
    for channel, (identifier, records) in held.items():
        combiner = combiners.get(identifier)
        since = combiner.since.get(channel) if isinstance(combiner, BarrierCombiner) else None
        rows.append([channel, identifier, records, *([] if since is None else [since])])
    return sorted(rows, key=lambda row: (row[3:], row[0]))[:ALL_CHANNELS]


def _holders(
    combiners: Mapping[str, Combiner],
    declarations: Mapping[str, WatermarkDeclaration],
    sent: Mapping[str, Mapping[int, Any]],
    combined: Mapping[str, Any],
    active: Collection[int],
    idle: Collection[int],
) -> Iterator[int]:
    most = max(1, min(_HOLDERS, _MOST_HOLDERS // max(1, len(combiners))))
    if not combiners:
        yield from list(active)[:most]  # nothing has arrived from any of them
    for identifier, values in sent.items():
        if identifier == EVENT_TIME:
            found = holders_of_event_time(values, active, idle, combined[identifier])
            if combined[identifier] is None:
                yield from sorted(values, key=lambda channel: values[channel])[-1:]  # event time does arrive
        else:
            policy = declarations[identifier].combination_policy
            order = order_of(declarations[identifier].value_type.name, policy.combination_function.value)
            found = holders_of_value(values, active, order=order, waits_for_all=policy.combine_wait_for_all_channels)
        yield from found[:most]


def _channel(
    number: int, sent: Mapping[str, Mapping[int, Any]], idle: Collection[int], ended: Collection[int]
) -> list[Any]:
    status = _ENDED if number in ended else _IDLE if number in idle else _ACTIVE
    own = _values({identifier: values.get(number) for identifier, values in sent.items()})
    row = [number, status, own.get("time"), own.get("values")]
    while row[-1] is None:
        row.pop()
    return row[:1] if row[1:] == [_ACTIVE] else row


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The event time, if there is any, and the other values."""
    others = {name: shown_value(value) for name, value in values.items() if value is not None and name != EVENT_TIME}
    time = values.get(EVENT_TIME)
    if time == PROCESSING_TIME:
        others[USE_PROCESSING_TIME] = True
    has_time = time is not None and LONG_MIN < time < PROCESSING_TIME
    return {**({"time": time} if has_time else {}), **({"values": others} if others else {})}
