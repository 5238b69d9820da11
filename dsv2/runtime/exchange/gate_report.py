"""The report of an input on its channels. Its size does not depend on their number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from dsv2.runtime.report.subtask_report import ChannelReport, InputReport
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.barrier_combiner import BarrierCombiner
from dsv2.watermark.combiner import Combiner
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, PROCESSING_TIME, USE_PROCESSING_TIME
from dsv2.watermark.holders import holders_of_event_time, holders_of_value, order_of
from dsv2.watermark.value_text import ShownValue, shown_value

ALL_CHANNELS: Final = 16
"""With more channels only those that hold a watermark back are reported."""

_HOLDERS = 4  # of each watermark
_MOST_HOLDERS = 16


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
    waiting = {} if blocked else _waiting(held, combiners)
    numbers: Collection[int] = range(channels)
    if channels > ALL_CHANNELS:
        active = [channel for channel in numbers if channel not in idle and channel not in ended]
        numbers = sorted({*_holders(combiners, declarations, sent, combined, active, idle), *waiting})
    return InputReport(
        channels,
        len(idle),
        len(ended),
        *_shown(combined),
        [
            ChannelReport(
                number,
                *_shown({identifier: values.get(number) for identifier, values in sent.items()}),
                number in idle,
                number in ended,
                *waiting.get(number, ()),
            )
            for number in numbers
        ],
        blocked,
    )


def _waiting(
    held: Mapping[int, tuple[str, int]], combiners: Mapping[str, Combiner]
) -> dict[int, tuple[str, int | None, int]]:
    """The channels that have been blocked for the longest time: by what, since when, and the number of records."""
    found: dict[int, tuple[str, int | None, int]] = {}
    for channel, (identifier, records) in held.items():
        combiner = combiners.get(identifier)
        since = combiner.since.get(channel) if isinstance(combiner, BarrierCombiner) else None
        found[channel] = identifier, since, records
    longest = sorted(found, key=lambda channel: (found[channel][1] or 0, channel))
    return {channel: found[channel] for channel in longest[:ALL_CHANNELS]}


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


def _shown(values: Mapping[str, Any]) -> tuple[int | None, dict[str, ShownValue]]:
    """The event time, if there is any, and the other values."""
    others = {name: shown_value(value) for name, value in values.items() if value is not None and name != EVENT_TIME}
    time = values.get(EVENT_TIME)
    if time == PROCESSING_TIME:
        others[USE_PROCESSING_TIME] = True
    return time if time is not None and LONG_MIN < time < PROCESSING_TIME else None, others
