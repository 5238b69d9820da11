"""A join of two inputs with two channels each, driven step by step, and the events that may happen to it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, Left, Right, join
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.testing import EndOfInput, IdleStatus, ManualClock, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark import LongWatermark, Watermark
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN
from tests.durations import ms
from tests.oracles.joins import Row
from tests.strategies import long_lists

CHANNELS = 4  # the first two belong to the left side
CHANNEL = st.integers(0, CHANNELS - 1)


class Wait(NamedTuple):
    """Nothing arrives for this time."""

    ms: int


class Event(NamedTuple):
    """A row or a signal arrives on a channel, or nothing does. The join may be restarted before it."""

    channel: int
    element: Row | Watermark | IdleStatus | EndOfInput | Wait
    restart: bool = False

    @property
    def side(self) -> int:
        """0: left, 1: right."""
        return self.channel // 2


def pair(left: Row | None, right: Row | None, output: Any, ctx: Any) -> None:
    """The join function of all these tests."""
    output.collect((left, right))


key_of = attrgetter("key")
"""The key of a row."""


class Both(NamedTuple):
    """The fields of a pair."""

    key: str
    left: int | None
    left_time: int | None
    right: int | None
    right_time: int | None


class OnlyLeft(NamedTuple):
    """The fields of a left row."""

    key: str
    left: int
    left_time: int


def joined_columns(
    mode: JoinMode, join_type: JoinType = JoinType.INNER
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """The same join with declared results, on columns."""
    left = {"left": Left("number"), "left_time": Left("timestamp")}
    right = {"right": Right("number"), "right_time": Right("timestamp")}
    result, fields = (Both, left | right) if join_type not in (JoinType.SEMI, JoinType.ANTI) else (OnlyLeft, left)
    any_join: Any = join
    return any_join(result, mode, join_type, left_records=Row, right_records=Row, **fields)  # type: ignore[no-any-return]


def as_pair(record: Any) -> tuple[Row | None, Row | None]:
    """The rows of a result of either join."""
    if not isinstance(record, Both | OnlyLeft):
        return record  # type: ignore[no-any-return]
    key, left, left_time, *right = record
    first = None if left is None or left_time is None else Row(key, left, left_time)
    return first, Row(key, *right) if right and right[0] is not None else None  # type: ignore[arg-type]


def event_time(timestamp: int) -> LongWatermark:
    """The watermark of event time."""
    return EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(timestamp)


class JoinDriver:
    """Runs ``function``, and returns its output for each event."""

    def __init__(
        self,
        function: TwoInputNonBroadcastStreamProcessFunction[Row, Row, Any],
        clock_ms: int = 0,
        snapshot: bytes | None = None,
    ) -> None:
        more: dict[str, Any] = {} if snapshot is None else {"snapshot": snapshot}
        self.harness = TwoInputNonBroadcastHarness(
            function,
            first_key=key_of,
            second_key=key_of,
            channels=2,
            declarations=[EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION],
            clock=ManualClock(clock_ms),
            **more,
        )
        self._forwarded = LONG_MIN
        self.moves: list[int] = []
        """Event time that was forwarded, in ms."""

    def take(self, event: Event) -> list[tuple[Any, Any, int]]:
        """The results of ``event``, each with its timestamp and the event time that was forwarded by then."""
        harness = self.harness
        if event.restart:
            harness.restart()
        side = (harness.first_input, harness.second_input)[event.side]
        element: Any = event.element
        if isinstance(element, Wait):
            harness.advance_clock(ms(element.ms))
        else:
            stamped = StampedRecord(element, element.timestamp) if isinstance(element, Row) else element
            side.push_all([stamped], channel=event.channel % 2)
        results: list[tuple[Any, Any, int]] = []
        for emitted in harness.output.elements:
            if isinstance(emitted, StampedRecord):
                results.append((as_pair(emitted.record), emitted.timestamp, self._forwarded))
            elif isinstance(emitted, LongWatermark):
                self._forwarded = emitted.value
                self.moves.append(emitted.value)
            elif isinstance(emitted, EndOfInput):
                self.moves.append(LONG_MAX)
        harness.output.clear()
        return results

    @property
    def event_time(self) -> int:
        """The current event time of the join."""
        return self.harness._task._time._inputs.current

    def state_size(self) -> int:
        """Bytes of the whole state."""
        return len(self.harness.snapshot())

    def counter(self, name: str) -> int:
        """A metric of the function."""
        return self.harness.progress.counters.get(name, 0)


STEP = st.one_of(
    *[st.tuples(st.just("row"), CHANNEL, st.tuples(st.sampled_from("ab"), st.integers(0, 14)))] * 5,
    st.tuples(st.just("event time"), CHANNEL, st.integers(0, 7)),
    st.tuples(st.just("event time everywhere"), CHANNEL, st.integers(0, 7)),
    st.tuples(st.just("idle"), CHANNEL, st.booleans()),
    st.tuples(st.just("wait"), CHANNEL, st.integers(1, 12)),
)


def _history(steps: list[tuple[tuple[str, int, Any], bool]], ends: Sequence[int]) -> list[Event]:
    events: list[Event] = []
    for number, ((what, channel, more), restart) in enumerate(steps):
        match what:
            case "row":
                events.append(Event(channel, Row(more[0], number, more[1]), restart))
            case "event time":
                events.append(Event(channel, event_time(more), restart))
            case "event time everywhere":
                events += [Event(every, event_time(more), restart) for every in range(CHANNELS)]
            case "idle":
                events.append(Event(channel, IdleStatus(more), restart))
            case _:
                events.append(Event(channel, Wait(more), restart))
    return events + [Event(channel, EndOfInput()) for channel in ends]


HISTORIES = st.builds(
    _history, long_lists(st.tuples(STEP, st.booleans()), max_size=40), st.permutations(range(CHANNELS))
)
"""Rows out of order, watermarks, channels that become idle and active, time that passes, and then the ends."""
