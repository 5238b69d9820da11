"""The snapshot of a gate whose channels are replaced, because its senders are.

Former channels are those with records behind an aligned watermark. They stay, after the channels of the plan, until the
watermark is complete and their records are processed. Then they end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, TypeAlias

from dsv2.runtime.exchange.control_log import END
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.channel_rules import ChannelChange, rules_of

GateState: TypeAlias = tuple[Any, ...]
"""``InputGate.snapshot()``."""
_Piece: TypeAlias = tuple[Any, ...]
"""Records, controls, timestamps, and the number of records that are already removed."""

_LAST_PIECE: _Piece = ([], [(0, END, "", 0)], None, 0)


def former_channels(state: GateState) -> list[int]:
    """Return the former channels of a gate."""
    channels, _, ended, _, _, held = state
    return sorted({channel for channel in (*ended, *held) if channel >= channels})


def held_records(state: GateState) -> int:
    """Return the number of records that a gate holds back behind aligned watermarks.

    Records that were decoded without the program, and may have no length, count as one.
    """
    *_, held = state
    held_pieces = (records for _, pieces in held.values() for records, *_ in pieces)
    return sum(len(records) if isinstance(records, Sized) else 1 for records in held_pieces)


def with_new_channels(state: GateState, channels: int, declarations: Mapping[str, WatermarkDeclaration]) -> GateState:
    """Replace the channels of a gate by ``channels`` new ones, as ``dsv2.watermark.channel_rules`` describes.

    They are idle, or have ended, if all old channels are idle or have ended.
    """
    before, combiners, ended, idle_channels, idle, held = state
    count = before + len(former_channels(state))
    live = [channel for channel in range(count) if channel not in ended]
    all_idle = bool(live) and all(channel in idle_channels for channel in live)
    former = sorted(held)
    change = ChannelChange(count, channels, former, all_idle, ended)
    number_of = change.numbers
    new = range(channels)
    return (
        channels,
        {name: rules_of(name, declarations).replaced(combiner, change) for name, combiner in combiners.items()},
        [] if live else [*new],
        [*(new if all_idle else ()), *(number_of[channel] for channel in former if channel in idle_channels)],
        idle,
        {
            number_of[channel]: (identifier, pieces if _ends(pieces) else [*pieces, _LAST_PIECE])
            for channel, (identifier, pieces) in held.items()
        },
    )


def _ends(pieces: Sequence[_Piece]) -> bool:
    """Return whether held elements contain the end of their channel."""
    return any(kind == END for _, controls, *_ in pieces for _, kind, *_ in controls)
