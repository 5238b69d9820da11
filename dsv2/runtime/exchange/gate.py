"""One input of one operator: puts its channels together.

It hands records on as they come, combines watermarks, keeps track of idle and ended channels, and holds a channel back
behind an aligned watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, TypeAlias

from dsv2.errors import IncompatibleCheckpointError, InternalError
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import END, START, STATUS, WATERMARK, Control
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN, PROCESSING_TIME, USE_PROCESSING_TIME, EventTimeCombiner

__all__ = ("GateListener", "InputGate")

_Piece: TypeAlias = tuple[RecordBatch[Any], list[Control], int]
"""What is left of a frame: records, controls, and how many records are gone, which positions count."""


class GateListener(Protocol):
    """The operator behind a gate."""

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        """Records of one channel, in order."""

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        """A combined watermark; event time may be ``PROCESSING_TIME``."""

    def on_status(self, input_index: int, idle: bool) -> None:
        """All channels went idle, or one became active again."""

    def on_end(self, input_index: int) -> None:
        """Every channel has ended."""

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        """Channels wait for one another behind different aligned watermarks: by channel, the identifier. Raises."""


class InputGate:
    """Combines ``channels`` channels into one input."""

    def __init__(
        self,
        input_index: int,
        channels: int,
        declarations: Mapping[str, WatermarkDeclaration],
        listener: GateListener,
    ) -> None:
        self._input = input_index
        self._channels = channels
        self._declarations = declarations
        self._listener = listener
        self._combiners: dict[str, Combiner] = {}
        self._ended: set[int] = set()
        self._idle_channels: set[int] = set()
        self._idle = False
        # channel -> (identifier it waits for, what arrived behind it)
        self._held: dict[int, tuple[str, list[_Piece]]] = {}
        # what was held and is free again; gone through by the outermost call of receive
        self._released: deque[tuple[int, _Piece]] = deque()

    @property
    def ended(self) -> bool:
        """Whether every channel has ended."""
        return len(self._ended) == self._channels

    @property
    def idle(self) -> bool:
        """Whether every channel that has not ended is idle."""
        return self._idle

    @property
    def held_records(self) -> int:
        """Number of records that wait behind aligned watermarks."""
        return sum(len(batch) for _, pieces in self._held.values() for batch, _, _ in pieces)

    def receive(self, channel: int, batch: RecordBatch[Any], controls: list[Control]) -> None:
        """Elements of ``channel``: records, with controls at positions between them."""
        self._accept(channel, (batch, controls, 0))
        while self._released:
            self._accept(*self._released.popleft())

    def _accept(self, channel: int, piece: _Piece) -> None:
        if channel in self._held:
            self._held[channel][1].append(piece)
            return
        batch, controls, gone = piece
        if batch and channel in self._ended:
            raise InternalError(f"Channel {channel} of input {self._input} sent records after its end.")
        done = 0
        for index, (position, kind, identifier, value) in enumerate(controls):
            if (stop := position - gone) > done:
                self._listener.on_records(self._input, batch.slice(done, stop))
                done = stop
            if kind == WATERMARK and self._declarations[identifier].combination_policy.aligned:
                rest = batch.slice(done), controls[index + 1 :], gone + done
                self._align(channel, identifier, value, rest)
                return
            self.control(channel, kind, identifier, value)
        if done < len(batch):
            self._listener.on_records(self._input, batch.slice(done) if done else batch)

    def control(self, channel: int, kind: int, identifier: str, value: int | bool) -> None:
        """One control element of ``channel``; not for aligned watermarks of gates with several channels."""
        if kind == WATERMARK:
            if identifier == USE_PROCESSING_TIME:
                identifier, value = EVENT_TIME, PROCESSING_TIME if value else LONG_MIN  # which is nothing new
            self._deliver(identifier, self._combiner(identifier).update(channel, value))
        elif kind == STATUS:
            self._set_idle(channel, bool(value))
        elif kind == END:
            self._end(channel)
        elif kind != START:
            raise InternalError(f"Unknown control element {kind}.")

    def _align(self, channel: int, identifier: str, value: int | bool, rest: _Piece) -> None:
        self._held[channel] = (identifier, [rest])
        self._deliver(identifier, self._combiner(identifier).update(channel, value))
        self._check_crossing()

    def _deliver(self, identifier: str, combined: int | bool | None) -> None:
        combiner = self._combiners[identifier]
        while combined is not None:
            self._listener.on_watermark(self._input, identifier, combined)
            if combiner.aligned:
                self._release(identifier)
            combined = combiner.following()

    def _check_crossing(self) -> None:
        # A round waits for each active channel. One that is held for another round cannot send its watermark, end or
        # go idle before that round is complete, which in turn waits for the first channel: neither ever will be.
        waiting = {c: held_for for c, (held_for, _) in self._held.items() if c not in self._idle_channels}
        if len(set(waiting.values())) > 1:
            self._listener.on_crossing(self._input, waiting)

    def _release(self, identifier: str) -> None:
        # Not received here and now: what happens at this moment (the end of a channel, say) comes to its end first.
        # To the front, because what these channels released before is older than what they hold.
        waiting = sorted(channel for channel, (held_for, _) in self._held.items() if held_for == identifier)
        for channel in reversed(waiting):
            self._released.extendleft((channel, piece) for piece in reversed(self._held.pop(channel)[1]))

    def _set_idle(self, channel: int, idle: bool) -> None:
        if idle == (channel in self._idle_channels) or channel in self._ended:
            return
        if idle:
            self._idle_channels.add(channel)
        else:
            self._idle_channels.discard(channel)
            self._report_idle()  # before what comes of it: receivers ignore the event time of who is idle
        for identifier, combiner in list(self._combiners.items()):
            change = combiner.deactivate if idle else combiner.activate
            self._deliver(identifier, change(channel))
        self._report_idle()

    def _end(self, channel: int) -> None:
        if channel in self._ended:
            raise InternalError(f"Channel {channel} of input {self._input} ended twice.")
        self._ended.add(channel)
        self._idle_channels.discard(channel)
        for identifier, combiner in list(self._combiners.items()):
            self._deliver(identifier, combiner.end(channel))
        if self.ended:
            self._listener.on_end(self._input)
        else:
            self._report_idle()

    def _report_idle(self) -> None:
        idle = len(self._idle_channels) + len(self._ended) == self._channels and not self.ended
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
        return new_combiner(self._declarations[identifier], self._channels, self._ended | self._idle_channels)

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values and held records."""
        return (
            self._channels,
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
        """Take over an earlier ``snapshot``. Raises ``IncompatibleCheckpointError`` as ``_replace_channels``."""
        channels, combiners, ended, idle_channels, self._idle, held = state
        self._held = {
            channel: (
                identifier,
                [(RecordBatch(records, timestamps), controls, gone) for records, controls, timestamps, gone in pieces],
            )
            for channel, (identifier, pieces) in held.items()
        }
        if channels == self._channels:
            self._ended, self._idle_channels = set(ended), set(idle_channels)
        else:
            self._replace_channels(channels, all_ended=len(ended) == channels)
        self._combiners = {}
        for identifier, combiner_state in combiners.items():
            combiner = self._combiner(identifier)
            if channels == self._channels:
                combiner.restore(combiner_state)
            else:
                combiner.restore_delivered(combiner_state)

    def _replace_channels(self, before: int, *, all_ended: bool) -> None:
        """The upstream operator has another parallelism than it had: its channels begin anew, idle if all were."""
        if self._held:
            raise IncompatibleCheckpointError(
                f"Input {self._input} had {before} channels and has {self._channels} now, and records wait behind an "
                f"aligned watermark. Go on with the parallelism of before until the watermark has come on all of them."
            )
        everyone = set(range(self._channels))
        self._ended = everyone if all_ended else set()
        self._idle_channels = everyone if self._idle else set()
