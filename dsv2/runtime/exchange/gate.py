"""The gate of one input of an operator merges its channels.

It forwards records as they arrive, combines watermarks, tracks idle and ended channels, and blocks a channel after an
aligned watermark. Rounds of barriers span all gates of an operator: see ``BarrierRounds``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn, Protocol, TypeAlias

from dsv2.errors import InternalError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.barrier_rounds import BLOCKED, BarrierRounds
from dsv2.runtime.exchange.control_log import END, START, STATUS, WATERMARK, Control
from dsv2.runtime.exchange.gate_report import input_report
from dsv2.runtime.exchange.gate_states import former_channels, with_new_channels
from dsv2.runtime.report.subtask_report import InputReport
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.barrier_combiner import BarrierCombiner, BarrierOrderError
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.event_time import (
    EVENT_TIME,
    PROCESSING_TIME,
    USE_PROCESSING_TIME,
    EventTimeCombiner,
    all_idle,
)
from dsv2.watermark.expiry import ExpiringCombiner

_Piece: TypeAlias = tuple[RecordBatch[Any], list[Control], int]
"""The rest of a frame: records, controls, and the number of records already removed, which positions include."""


class GateListener(Protocol):
    """The operator that a gate belongs to."""

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        """Process records of one channel, in order."""

    def on_watermark(self, input_index: int, identifier: str, value: Any) -> None:
        """Process a combined watermark. Event time may be ``PROCESSING_TIME``."""

    def on_status(self, input_index: int, idle: bool) -> None:
        """Called when all channels became idle or one became active again."""

    def on_end(self, input_index: int) -> None:
        """Called when every channel has ended."""

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        """Raise an error: channels block each other at different aligned watermarks, given by channel."""


@dataclass(frozen=True, slots=True)
class ExpiryHooks:
    """The clock and callback of a gate for values that expire.

    Attributes:
        now: Returns the processing time in ms.
        refresh: Called with the input, the identifier and the value when an update has not changed the combined value,
            but extended the time for which it counts.
    """

    now: Callable[[], int]
    refresh: Callable[[int, str, Any], None]


@dataclass(frozen=True, slots=True)
class KeyHooks:
    """The callbacks of a gate for per-key watermarks.

    Attributes:
        received: Called with the input, the channel, the identifier, and the key and value of a watermark.
        changed: Called with the input, the channel and the name of the change that it makes to a combiner:
            ``activate``, ``deactivate`` or ``end``.
    """

    received: Callable[[int, int, str, Any], None]
    changed: Callable[[int, int, str], None]


class InputGate:
    """Combines ``channels`` channels into one input."""

    def __init__(
        self,
        input_index: int,
        channels: int,
        declarations: Mapping[str, WatermarkDeclaration],
        listener: GateListener,
        expiry: ExpiryHooks | None = None,
        keys: KeyHooks | None = None,
        rounds: BarrierRounds | None = None,
    ) -> None:
        """``rounds``: The barriers of the operator. None: it has one input, and no limits."""
        self._rounds = BarrierRounds(declarations) if rounds is None else rounds
        self._rounds.gates.append(self)
        self._input = input_index
        self._channels_of_plan = channels
        self._channels = channels  # and the former channels of ``restore``
        self._declarations = declarations
        self._listener = listener
        self._expiry = ExpiryHooks(lambda: 0, lambda number, identifier, value: None) if expiry is None else expiry
        self._keys = keys
        self._per_key = {name for name, declaration in declarations.items() if declaration.scope.key_type is not None}
        self._combiners: dict[str, Combiner] = {}
        self._ended: set[int] = set()
        self._idle_channels: set[int] = set()
        self._idle = False
        # channel -> (the aligned watermark that blocks it, the elements that arrived after that)
        self._held: dict[int, tuple[str, list[_Piece]]] = {}
        self._held_for: set[str] = set()  # the watermarks that block channels
        # elements that are no longer blocked; processed by the outermost call of receive
        self._released: deque[tuple[int, _Piece]] = deque()
        self._behind: set[int] = set()  # channels that have not sent a barrier that is complete
        self._room: float = inf  # for further records while it is blocked
        self._on_full: Callable[[], NoReturn] | None = None

    @property
    def blocked(self) -> bool:
        """True if the elements of all channels are held until ``unblock``."""
        return BLOCKED in self._held_for

    def block(self, max_records: int, on_full: Callable[[], NoReturn]) -> None:
        """Hold the elements of all channels until ``unblock``. With more than ``max_records``, call ``on_full``."""
        for channel in range(self._channels):
            self._held.setdefault(channel, (BLOCKED, []))
        self._held_for = {identifier for identifier, _ in self._held.values()}
        self._room = max_records - self.held_records
        self._on_full = on_full

    def unblock(self) -> None:
        """Process the elements that were held by ``block``."""
        self.release(BLOCKED)
        self.process_released()

    @property
    def ended(self) -> bool:
        """True if every channel has ended."""
        return len(self._ended) == self._channels

    @property
    def idle(self) -> bool:
        """True if every channel that has not ended is idle, or follows the clock while another one is idle."""
        return self._idle

    @property
    def channels(self) -> int:
        """The number of channels."""
        return self._channels

    @property
    def inactive(self) -> set[int]:
        """The channels that are idle or have ended."""
        return self._ended | self._idle_channels

    @property
    def held_records(self) -> int:
        """Number of records blocked by aligned watermarks."""
        return sum(map(_count, self._held.values()))

    def held_by(self, identifier: str) -> int:
        """The number of records that an aligned watermark holds."""
        return sum(_count(held) for held in self._held.values() if held[0] == identifier)

    def blocked_by(self) -> dict[int, str]:
        """The identifiers that block channels that are not idle."""
        return {c: identifier for c, (identifier, _) in self._held.items() if c not in self._idle_channels}

    def report(self) -> InputReport:
        """Report the channels, for the progress of the job."""
        return input_report(
            self._channels,
            self._combiners,
            self._declarations,
            self._idle_channels,
            self._ended,
            blocked=self.blocked,
            held={channel: (held[0], _count(held)) for channel, held in self._held.items()},
        )

    def receive(self, channel: int, batch: RecordBatch[Any], controls: list[Control]) -> None:
        """Receive elements of ``channel``: records, with controls at positions between them."""
        self._accept(channel, (batch, controls, 0))
        self.process_released()
        if self._rounds.released:
            self._rounds.process_released()

    def process_released(self) -> None:
        """Process the elements that are no longer blocked."""
        while self._released:
            self._accept(*self._released.popleft())

    def _accept(self, channel: int, piece: _Piece) -> None:
        if channel in self._held:
            self._hold(channel, piece)
            return
        batch, controls, gone = piece
        if batch and channel in self._ended:
            raise InternalError(f"Channel {channel} of input {self._input} sent records after its end.")
        done = index = 0
        while index < len(controls):
            position, kind, identifier, value = controls[index]
            if (stop := position - gone) > done:
                if channel in self._behind:
                    self._count_behind(channel, stop - done)
                self._listener.on_records(self._input, batch.slice(done, stop))
                done = stop
            if kind == WATERMARK and self._declarations[identifier].combination_policy.aligned:
                rest = batch.slice(done), controls[index + 1 :], gone + done
                self._align(channel, identifier, value, rest)
                return
            end = _end_of_run(controls, index) if self._channels > 1 else index + 1
            if end - index > 1:
                self._run(channel, identifier, [control[-1] for control in controls[index:end]])
            else:
                self.control(channel, kind, identifier, value)
            index = end
        if done < len(batch):
            if channel in self._behind:
                self._count_behind(channel, len(batch) - done)
            self._listener.on_records(self._input, batch.slice(done) if done else batch)

    def _hold(self, channel: int, piece: _Piece) -> None:
        identifier, pieces = self._held[channel]
        pieces.append(piece)
        if identifier == BLOCKED:
            self._room -= len(piece[0])
            if self._room < 0 and self._on_full is not None:
                self._on_full()
        elif identifier in self._rounds.limited:
            self._rounds.hold(identifier, len(piece[0]))
            self._rounds.check_held(identifier)

    def control(self, channel: int, kind: int, identifier: str, value: Any) -> None:
        """Process one control element of ``channel``. Not for aligned watermarks if there are several channels."""
        if kind == WATERMARK:
            if identifier in self._per_key:
                if self._keys is not None:
                    self._keys.received(self._input, channel, identifier, value)
                return
            if identifier == USE_PROCESSING_TIME:
                if value:
                    self._deliver(EVENT_TIME, self._combiner(EVENT_TIME).update(channel, PROCESSING_TIME))
                    self._report_idle()
                return
            self._deliver(identifier, self._combiner(identifier).update(channel, value))
        elif kind == STATUS:
            self._set_idle(channel, bool(value))
        elif kind == END:
            self._end(channel)
        elif kind != START:
            raise InternalError(f"Unknown control element {kind}.")

    def _run(self, channel: int, identifier: str, values: list[Any]) -> None:
        """Process several values of a watermark that is not aligned, with nothing between them."""
        if identifier in self._per_key:
            for value in values:
                self.control(channel, WATERMARK, identifier, value)
            return
        combiner = self._combiner(identifier)
        for value in combiner.effective(channel, values):
            self._deliver(identifier, combiner.update(channel, value))

    def _align(self, channel: int, identifier: str, value: Any, rest: _Piece) -> None:
        self._held[channel] = (identifier, [rest])
        self._held_for.add(identifier)
        is_limited = identifier in self._rounds.limited
        if is_limited:
            self._rounds.hold(identifier, len(rest[0]))
        combiner = self._combiner(identifier)
        try:
            self._deliver(identifier, combiner.update(channel, value))
        except BarrierOrderError as error:
            self._rounds.fail_order(identifier, self._input, error)
        if isinstance(combiner, BarrierCombiner) and channel not in combiner.sent():
            self.release(identifier)  # an id that is complete already blocks nothing
        self._check_crossing()
        if is_limited:
            self._rounds.check_held(identifier)

    def _deliver(self, identifier: str, combined: Any) -> None:
        combiner = self._combiners[identifier]
        while combined is not None:
            if not combiner.aligned:
                self._listener.on_watermark(self._input, identifier, combined)
            elif isinstance(combiner, BarrierCombiner):
                self._rounds.deliver(identifier, combined)
            else:
                self._listener.on_watermark(self._input, identifier, combined)
                self.release(identifier)
            combined = combiner.following()
        if isinstance(combiner, ExpiringCombiner) and (again := combiner.refresh()) is not None:
            self._expiry.refresh(self._input, identifier, again)

    def expire(self, now_ms: int) -> None:
        """Forget the values that have expired at ``now_ms``."""
        for identifier, combiner in self._expiring():
            self._deliver(identifier, combiner.expire(now_ms))

    def next_expiry(self) -> int | None:
        """Return when the next value expires, in ms. None: there is none."""
        times = [combiner.next_deadline() for _, combiner in self._expiring()]
        return min((time for time in times if time is not None), default=None)

    def note_handled(self, identifier: str, *, passed_on: bool) -> None:
        """Note whether the operator has passed on the value of a watermark that expires, so that it is refreshed."""
        combiner = self._combiners[identifier]
        if isinstance(combiner, ExpiringCombiner):
            combiner.repeats = passed_on

    def _expiring(self) -> list[tuple[str, ExpiringCombiner[Any]]]:
        return [(name, one) for name, one in self._combiners.items() if isinstance(one, ExpiringCombiner)]

    def deliver_barrier(self, identifier: str, value: Any) -> None:
        """Pass a barrier to the operator. Called on the first gate."""
        self._listener.on_watermark(self._input, identifier, value)

    def _count_behind(self, channel: int, records: int) -> None:
        """Count records before the next barrier of a channel. They are late if its id is complete already."""
        for _, combiner in self._barriers():
            combiner.count_behind(channel, records)

    def _barriers(self) -> Iterator[tuple[str, BarrierCombiner]]:
        for identifier, combiner in self._combiners.items():
            if isinstance(combiner, BarrierCombiner):
                yield identifier, combiner

    def barrier_combiner(self, identifier: str) -> BarrierCombiner:
        """Return the combiner of a barrier, creating it if necessary."""
        combiner = self._combiner(identifier)
        assert isinstance(combiner, BarrierCombiner)
        return combiner

    def _check_crossing(self) -> None:
        # A round waits for each active channel. A channel that is blocked by another round cannot send its watermark,
        # end or become idle before that round completes, which waits for the first channel: a deadlock.
        if len(self._held_for) > 1 and len(set((waiting := self.blocked_by()).values())) > 1:
            self._listener.on_crossing(self._input, waiting)
        self._rounds.check_crossing()

    def release(self, identifier: str) -> None:
        """Queue the elements of channels that ``identifier`` no longer blocks."""
        # Queue the elements instead of processing them, so that the current event (such as the end of a channel) is
        # completed first. Queue them at the front: each of these channels may have older elements in its own rest.
        combiner = self._combiners.get(identifier)
        blocked: Mapping[int, Any] = {}
        if isinstance(combiner, BarrierCombiner):
            blocked = combiner.sent()
            self._find_behind()
        held_for = (channel for channel, (name, _) in self._held.items() if name == identifier)
        for channel in sorted((channel for channel in held_for if channel not in blocked), reverse=True):
            held = self._held.pop(channel)
            self._released.extendleft((channel, piece) for piece in reversed(held[1]))
            if identifier in self._rounds.limited:
                self._rounds.hold(identifier, -_count(held))
        if not blocked:
            self._held_for.discard(identifier)

    def _find_behind(self) -> None:
        self._behind = {channel for _, one in self._barriers() for channel in one.behind}

    def _set_idle(self, channel: int, idle: bool) -> None:
        if idle == (channel in self._idle_channels) or channel in self._ended:
            return
        if idle:
            self._idle_channels.add(channel)
        else:
            self._idle_channels.discard(channel)
            self._report_idle()  # first, because receivers ignore the event time of idle channels
        for identifier, combiner in list(self._combiners.items()):
            change = combiner.deactivate if idle else combiner.activate
            self._deliver(identifier, change(channel))
        self._note_change(channel, "deactivate" if idle else "activate")
        self._report_idle()

    def _end(self, channel: int) -> None:
        if channel in self._ended:
            raise InternalError(f"Channel {channel} of input {self._input} ended twice.")
        self._ended.add(channel)
        self._idle_channels.discard(channel)
        for identifier, combiner in list(self._combiners.items()):
            self._deliver(identifier, combiner.end(channel))
        self._note_change(channel, "end")
        if self.ended:
            self._listener.on_end(self._input)
        else:
            self._report_idle()

    def _note_change(self, channel: int, change: str) -> None:
        if self._per_key and self._keys is not None:
            self._keys.changed(self._input, channel, change)

    def _report_idle(self) -> None:
        time = self._combiners.get(EVENT_TIME)
        by_clock = time.by_clock if isinstance(time, EventTimeCombiner) else set[int]()
        idle = all_idle(self._channels, self._idle_channels, self._ended, by_clock)
        if idle != self._idle:
            self._idle = idle
            self._listener.on_status(self._input, idle)

    def _combiner(self, identifier: str) -> Combiner:
        combiner = self._combiners.get(identifier)
        if combiner is None:
            combiner = self._combiners[identifier] = self._new_combiner(identifier)
        return combiner

    def _new_combiner(self, identifier: str) -> Combiner:
        if identifier == EVENT_TIME:
            return EventTimeCombiner(self._channels, self._idle_channels, self._ended)
        declaration, inactive = self._declarations[identifier], self._ended | self._idle_channels
        if declaration.combination_policy.barrier is not None:
            return self._rounds.new_combiner(identifier, self._channels, inactive)
        return new_combiner(declaration, self._channels, inactive, self._expiry.now)

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state as built-in values and blocked records."""
        return (
            self._channels_of_plan,
            {identifier: combiner.snapshot() for identifier, combiner in self._combiners.items()},
            sorted(self._ended),
            sorted(self._idle_channels),
            self._idle,
            {
                channel: (
                    identifier,
                    [(batch.records, controls, batch.timestamps, gone) for batch, controls, gone in pieces],
                )
                for channel, (identifier, pieces) in self._held.items()
            },
        )

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore a ``snapshot``. The number of channels may have changed since. Then ``settle`` must follow."""
        if state[0] != self._channels:
            state = with_new_channels(state, self._channels, self._declarations)
        _, combiners, ended, idle_channels, self._idle, held = state
        self._channels += len(former_channels(state))
        self._held = {
            channel: (
                identifier,
                [(RecordBatch(records, timestamps), controls, gone) for records, controls, timestamps, gone in pieces],
            )
            for channel, (identifier, pieces) in held.items()
        }
        self._held_for = {identifier for identifier, _ in self._held.values()}
        self._ended, self._idle_channels = set(ended), set(idle_channels)
        self._combiners = {}
        for identifier, combiner_state in combiners.items():
            self._combiner(identifier).restore(combiner_state)
        self._find_behind()
        self._rounds.recount()

    def settle(self) -> None:
        """Report what has become true because the channels changed between ``snapshot`` and ``restore``."""
        for identifier, combiner in list(self._combiners.items()):
            if combiner.aligned:
                self._deliver(identifier, combiner.following())
        self.process_released()
        self._rounds.process_released()
        if not self.ended:
            self._report_idle()


def _count(held: tuple[str, list[_Piece]]) -> int:
    return sum(len(batch) for batch, _, _ in held[1])


def _end_of_run(controls: list[Control], index: int) -> int:
    """Return the number of the first element that is not another value of the same watermark at the same position."""
    end = index + 1
    if controls[index][1] == WATERMARK and controls[index][2] != USE_PROCESSING_TIME:
        same = controls[index][:3]
        while end < len(controls) and controls[end][:3] == same:
            end += 1
    return end
