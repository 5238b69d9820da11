"""Event time and other watermarks of an operator: the slowest of its subtasks, or of the splits of a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dsv2.jobs.progress import InputProgress, OperatorProgress, SplitProgress, SubtaskProgress
from dsv2.jobs.summary.splits import active_splits
from dsv2.plan_view.model import PlanView
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN, USE_PROCESSING_TIME
from dsv2.watermark.value_text import ShownValue, greatest_shown, least_shown


@dataclass(frozen=True, slots=True)
class Slowest:
    """The values of a watermark in the parts of an operator that can hold it back.

    Attributes:
        least: The least value of those that have one. None: there is none.
        greatest: The greatest one.
        without: How many parts have no value, so they are the slowest.
        parts: How many parts there are.
    """

    least: ShownValue | None
    greatest: ShownValue | None
    without: int
    parts: int

    @property
    def time(self) -> int | None:
        """Event time in ms. None: the slowest part has none."""
        return None if self.without or not isinstance(self.least, int) else self.least


def has_ended(one: InputProgress) -> bool:
    """Return whether all channels of an input have ended."""
    return 0 < one.channel_count == one.ended_count


def is_idle(one: InputProgress) -> bool:
    """Return whether no channel of an input is active, and some are idle."""
    return one.idle_count > 0 and one.idle_count + one.ended_count == one.channel_count


def is_active(subtask: SubtaskProgress) -> bool:
    """Return whether a subtask has not ended, and is not idle."""
    all_idle = bool(subtask.inputs) and all(is_idle(one) or has_ended(one) for one in subtask.inputs)
    return not subtask.ended and not all_idle


def awaiting_event_time(plan: PlanView) -> frozenset[str]:
    """Return the uids of the operators that act as event time advances, and have its generator upstream."""
    times = [one for one in plan.watermarks if one.identifier == EVENT_TIME]
    reached = {number for one in times for number in set(one.received_by) - set(one.declared_by)}
    return frozenset(one.uid or "" for one in plan.operators if one.event_time and one.id in reached)


def _arrives(operator: OperatorProgress) -> bool:
    """Return whether event time arrives on all inputs, although it may not have reached any of the subtasks."""
    inputs = [one for subtask in operator.subtasks for one in subtask.inputs]
    timed = {one.input for one in inputs if any(channel.event_time is not None for channel in one.channels)}
    has_time = any(subtask.event_time is not None for subtask in operator.subtasks)
    return has_time or (bool(timed) and timed == {one.input for one in inputs})


def event_time_of(operator: OperatorProgress, awaiting: Collection[str] = ()) -> Slowest | None:
    """Return the event time of an operator; None if it has nothing to do with event time, or has ended without it.

    Args:
        operator: The progress of the operator.
        awaiting: The operators that wait for event time, although it may not have arrived.
    """
    if operator.splits:
        return event_time_of_splits(operator.splits)
    return event_time_of_subtasks(operator, operator.subtasks, awaiting)


def event_time_of_subtasks(
    operator: OperatorProgress, chosen: Sequence[SubtaskProgress], awaiting: Collection[str] = ()
) -> Slowest | None:
    """Return the event time of some of the subtasks of an operator, likewise."""
    timed = [one for one in chosen if not _follows_clock(one)]
    parts = [one for one in timed if is_active(one)] or [one for one in timed if one.event_time is not None]
    is_timed = operator.uid in awaiting or _arrives(operator)
    return _slowest([one.event_time for one in parts]) if is_timed else None


def event_time_of_splits(splits: Sequence[SplitProgress]) -> Slowest | None:
    """Return the event time of the active splits of a source. None: it assigns no event time to splits."""
    if all(split.event_time is None for split in splits):
        return None
    return _slowest([split.event_time for split in active_splits(splits)])


def watermark_of(operator: OperatorProgress, identifier: str) -> Slowest | None:
    """Return a watermark of the program in an operator. None: no subtask has received it."""
    values = operator.watermarks.get(identifier, ())
    return _slowest(values) if any(value is not None for value in values) else None


def _follows_clock(subtask: SubtaskProgress) -> bool:
    continuing = [one for one in subtask.inputs if not has_ended(one)]
    return bool(continuing) and all(one.watermarks.get(USE_PROCESSING_TIME) for one in continuing)


def _slowest(values: Sequence[ShownValue | None]) -> Slowest | None:
    if not values:
        return None
    known = [value for value in values if value is not None and (isinstance(value, str) or value > LONG_MIN)]
    least, greatest = (least_shown(known), greatest_shown(known)) if known else (None, None)
    return Slowest(least, greatest, len(values) - len(known), len(values))


def newest(times: Iterable[Slowest]) -> int | None:
    """The newest event time in a job, in ms. The end of all input does not count."""
    known = [time for one in times for time in (one.least, one.greatest) if isinstance(time, int)]
    return max((time for time in known if time < LONG_MAX), default=None)
