"""The report on one watermark: its values, and what holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dsv2.watermark.value_text import ShownValue


class Cause(Enum):
    """The reason why a watermark of an operator is not greater than it is.

    ``NOTHING``: It moved within the last seconds, follows the wall clock, or is True.
    ``ENDED``: The input has ended.
    ``IDLE``: All channels are idle, so there is nothing to combine.
    ``NOT_DECLARED``: Nothing upstream of an input declares it.
    ``NOT_FORWARDED``: A function does not forward it, because of its handling strategy ``ignore``.
    ``POLLED``: A function has received it and returned POLL from ``on_watermark``, and has not emitted it itself.
    ``NOT_EMITTED``: The function or source that emits it has not emitted a greater value.
    ``NO_RECORDS``: It depends on records of a source that has not produced any.
    ``QUIET_SPLIT``: It depends on a split of a source that has no new records, and is not idle.
    ``BACKLOG``: It depends on a split of a source with records that have not been read yet.
    ``PAUSED_SPLIT``: It depends on a split that watermark alignment has paused, because another source is behind.
    ``BROADCAST_WAIT``: The main input waits for the broadcast side.
    ``UNKNOWN``: The progress of the job does not tell.
    """

    NOTHING = "nothing"
    ENDED = "ended"
    IDLE = "idle"
    NOT_DECLARED = "not declared"
    NOT_FORWARDED = "not forwarded"
    POLLED = "polled"
    NOT_EMITTED = "not emitted"
    NO_RECORDS = "no records"
    QUIET_SPLIT = "quiet split"
    BACKLOG = "backlog"
    PAUSED_SPLIT = "paused split"
    BROADCAST_WAIT = "broadcast wait"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ChannelWatermark:
    """A channel of an input.

    Attributes:
        channel: The index of the channel.
        value: The value that arrived last. None: there was none, or, for an aligned watermark, none for this round.
        idle: Whether the channel is idle.
        ended: Whether it has ended.
        moved_at_ms: When the value last changed, in ms since the epoch. None: unknown, or there is no value.
        holds_back: Whether the value of the input depends on this channel.
        blocked_since_ms: When the barrier has blocked the channel, in ms since the epoch. None: it has not.
        records_held: Number of records of the channel that wait behind the watermark.
    """

    channel: int
    value: ShownValue | None = None
    idle: bool = False
    ended: bool = False
    moved_at_ms: int | None = None
    holds_back: bool = False
    blocked_since_ms: int | None = None
    records_held: int = 0


@dataclass(frozen=True, slots=True)
class InputWatermark:
    """An input of a subtask.

    Attributes:
        input: The index of the input.
        sender: The uid of the operator upstream.
        value: The combined value. None: there is none yet.
        channel_count: The number of channels.
        idle: Whether no channel is active, and at least one is idle.
        ended: Whether all channels have ended.
        channels: The channels. With many of them, only those that may hold the value back.
    """

    input: int
    sender: str
    value: ShownValue | None
    channel_count: int
    idle: bool = False
    ended: bool = False
    channels: tuple[ChannelWatermark, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One operator on the way from an operator upstream to the cause.

    Attributes:
        operator: The uid of the operator.
        subtask: The subtask. None: any of them.
        input: The input on which the way continues. None: it ends here.
        channel: The channel on which it continues. None: it ends here.
    """

    operator: str
    subtask: int | None
    input: int | None = None
    channel: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorWatermark:
    """The watermark in one operator, as of its subtask that is furthest behind.

    Attributes:
        uid: The uid of the operator.
        name: The name of the operator.
        subtask: The subtask.
        value: Its value: the combined event time, otherwise the least value of the inputs. None: there is none yet.
        values: The value of each subtask that has reported, by index.
        inputs: The inputs of the subtask.
        cause: Why the value is not greater.
        path: From this operator to the one that is the cause, along the channels that hold the value back.
        split: The id of the split that is the cause, or None.
        lasted_ms: For how long the channel that holds the value back has not moved, in ms. None: it never has, or it
            is unknown.
        sentence: All of this in words.
        advice: What can be done about it, or "".
    """

    uid: str
    name: str
    subtask: int
    value: ShownValue | None
    values: tuple[ShownValue | None, ...]
    inputs: tuple[InputWatermark, ...]
    cause: Cause
    path: tuple[Step, ...]
    split: str | None = None
    lasted_ms: int | None = None
    sentence: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True)
class WatermarkReport:
    """The report on one watermark. ``print`` shows a sentence for each operator.

    Attributes:
        identifier: The identifier of the watermark; ``event-time`` for event time.
        batch_id: The last micro-batch that is taken into account. -1: there is none.
        now_ms: The time of the report, in ms since the epoch.
        operators: The operators that receive the watermark or wait for it, upstream first.
    """

    identifier: str
    batch_id: int
    now_ms: int
    operators: tuple[OperatorWatermark, ...]

    def __getitem__(self, operator: str) -> OperatorWatermark:
        """Return an operator by its uid or name. Raises ``KeyError`` if it is not in the report."""
        for by in ("uid", "name"):
            for one in self.operators:
                if getattr(one, by) == operator:
                    return one
        raise KeyError(operator)

    def __str__(self) -> str:
        return "\n".join(map(str, self.operators)) or "No operator receives this watermark."
