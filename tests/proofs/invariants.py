"""Invariants of every state, by what channels have sent and the function has seen: nothing else.

``Facts`` is the history of one input, as far as it matters. It does not know how the code combines watermarks, only
which results are acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME
from tests.proofs.events import Frame, Record, shown_letter
from tests.proofs.model import Seen
from tests.proofs.rules import LONG_MIN, Frozen, Rule, Status
from tests.proofs.sent import Arriving, SentByChannels, as_sent
from tests.support import Signal

INVARIANTS = {
    "model": "The function sees, and the operator sends, what the model does.",
    "restart": "A run that is restarted before every frame does the same as one that is never restarted.",
    "records": "The records of a channel are seen once and in order, and none is seen before an aligned watermark that "
    "was sent before it.",
    "cut": "A watermark is the combination of the values that its channels had sent before a cut: each channel is cut "
    "behind the records that were seen and before those that were not. All active channels are part of it.",
    "change": "A watermark that is not aligned is delivered only if its value has changed.",
    "event time": "Event time never decreases, and never exceeds that of a channel that was never idle.",
    "round": "An aligned watermark combines one watermark of each channel that is held back by it, and every active "
    "channel is. Between two rounds, the function sees exactly the records between the watermarks of the channel.",
    "progress": "What the active channels have sent is not waiting for others: unless a channel that has sent nothing "
    "is waited for, the last value is their combination, or beyond it because of channels that are inactive. Event "
    "time is that of the last of the active channels that have caught up, or, if none is active, of the furthest one.",
    "blocked": "A channel is held back only while an active one has not sent the watermark of the round.",
    "crossing": "The job fails exactly if two active channels are held back by different aligned watermarks.",
    "status": "An input is idle exactly if all of its channels that have not ended are, and one has not. One that "
    "follows the clock is disregarded if another one is idle.",
    "order": "Each id of a barrier is delivered once, and in order. The job fails exactly if those of a channel do not "
    "increase.",
    "part": "Between two barriers, the function sees exactly the records between these ids of each channel. A channel "
    "that is not active, or was not waited for, is cut anywhere.",
    "late": "The ids that arrive after they were delivered, and the records before them, are counted.",
    "limit": "A barrier waits no longer and holds no more records than it may, and is not cut short before that.",
    "live": "A watermark that expires combines values of channels that have not expired, and no longer others.",
    "lost": "Once all channels have ended, the function has seen all records and the end, and the last value of every "
    "channel was part of a combination.",
}
"""The name of every invariant, and its definition."""


class ViolationError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {INVARIANTS[invariant]}\n  {detail}")
        self.invariant = invariant


def require(condition: object, invariant: str, detail: str) -> None:
    if not condition:
        raise ViolationError(invariant, detail)


class Judged(NamedTuple):
    """The observations by which facts can be judged.

    Attributes:
        status: What is seen includes the status of the input.
        time: What is seen includes the event time of these channels.
        overtakes: An active channel whose event time is behind that of its input is not waited for. (An input is.)
        closes: What is seen includes that the operator closes, not only that its inputs end.
        progress_of_others: Progress is judged while a channel is inactive. Not behind a second operator, because a
            subtask without active channels that have sent a value cannot take back that of an inactive one.
        repeats: A value that repeats the last one of its channel must be part of a combination again. Not behind a
            second operator, because the first one forwards only changes.
        last_values: The last value of every channel must be part of a combination. Not behind a second operator if a
            subtask of the first one has several channels: it may send its next value at the same time.
    """

    status: bool = False
    time: bool = True
    overtakes: bool = True
    closes: bool = True
    progress_of_others: bool = True
    repeats: bool = True
    last_values: bool = True


ALL_JUDGED = Judged()


class _Channel:
    """The elements that a channel has sent."""

    __slots__ = ("counted", "is_steady", "status", "unseen", "values")

    def __init__(self, state: Frozen = ((), "active", (), (), True)) -> None:
        unseen, self.status, values, counted, self.is_steady = state
        self.unseen: list[Any] = list(unseen)  # what lies behind the cut
        self.values: dict[str, Any] = dict(values)  # before the cut
        self.counted = set(counted)  # the identifiers whose last value was part of a combination
        # is_steady: it has never been idle

    def frozen(self) -> Frozen:
        values, counted = tuple(sorted(self.values.items())), tuple(sorted(self.counted))
        return tuple(self.unseen), self.status, values, counted, self.is_steady

    def later(self, rules: Mapping[str, Rule], *, repeats: bool) -> Iterator[_Channel]:
        """This channel, cut at every place before the next record or aligned watermark."""
        one = _Channel(self.frozen())
        yield one
        while one.unseen and _passes(one.unseen[0], rules):
            one = _Channel(one.frozen())
            one.take(repeats=repeats)
            yield one

    def take(self, *, repeats: bool) -> None:
        """Move the cut behind the next element, which is not a record. ``repeats``: See ``Judged``."""
        element = self.unseen.pop(0)
        if element.kind == WATERMARK:
            if element.identifier == EVENT_TIME:
                if self.status == "active" or element.value == PROCESSING_TIME:
                    self.values[EVENT_TIME] = max(self.values.get(EVENT_TIME, LONG_MIN), element.value)
                return
            if repeats or self.values.get(element.identifier) != element.value:
                self.counted.discard(element.identifier)
            self.values[element.identifier] = element.value
        elif element.kind == STATUS:
            self.status = "idle" if element.value else "active"
            self.is_steady = self.is_steady and not element.value
        else:
            self.status = "ended"

    @property
    def time(self) -> int:
        """Its event time."""
        return int(self.values.get(EVENT_TIME, LONG_MIN))

    @property
    def is_by_clock(self) -> bool:
        """True if its event time follows the clock."""
        return self.time == PROCESSING_TIME

    def held_by(self) -> str | None:
        """The aligned watermark that is next, if the next element is one."""
        if not self.unseen or not isinstance(self.unseen[0], Signal):
            return None
        return str(self.unseen[0].identifier) or None


def _passes(element: Any, rules: Mapping[str, Rule]) -> bool:
    """Return whether an element that is neither a record nor an aligned watermark."""
    if not isinstance(element, Signal):
        return False
    return element.kind != WATERMARK or not rules[element.identifier].aligned


class Facts(SentByChannels[_Channel]):
    """The channels of one input, and the last values that its function has seen."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        channels: int,
        state: Frozen | None = None,
        judged: Judged = ALL_JUDGED,
        arriving: Arriving = as_sent,
    ) -> None:
        of_channels, last, self._idle, self._ended = state or ((_Channel().frozen(),) * channels, (), False, False)
        self._rules = rules
        self._judged = judged
        super().__init__([_Channel(one) for one in of_channels], arriving)
        self._last: dict[str, Any] = dict(last)
        self._delivered: list[tuple[Rule, Any]] = []
        self._taking_part: Iterator[Sequence[bool]] = iter(())

    def frozen(self) -> Frozen:
        """The state."""
        if EVENT_TIME not in self._rules:
            for channel in self._channels:
                channel.is_steady = True  # does not matter
        return tuple(one.frozen() for one in self._channels), tuple(sorted(self._last.items())), self._idle, self._ended

    def stays_active(self, channel: int) -> bool:
        """Return whether ``channel`` is active, and nothing that is unseen changes that."""
        one = self._channels[channel]
        changes = (element.kind in (STATUS, END) for element in one.unseen if isinstance(element, Signal))
        return one.status == "active" and not any(changes)

    def check(self, seen: Sequence[Seen], owners: Sequence[int], taking_part: Iterable[Sequence[bool]]) -> bool:
        """Check what the function has seen since ``sent``. Returns whether the job goes on.

        Args:
            seen: What it has seen.
            owners: The numbers of the channels in the job.
            taking_part: For each round, whether each channel takes part in it if it is inactive and its watermark is
                next. Both are possible: it may have been sent before the round was complete, or after it.
        """
        self._taking_part = iter(taking_part)
        for one in seen:
            match one:
                case ("record", record):
                    self._on_record(record, owners)
                case ("watermark", identifier, value):
                    self._on_watermark(identifier, value)
                case ("idle", idle):
                    self._on_status(idle)
                case ("end",):
                    self._on_end()
                case _:
                    self._on_crossing()
                    return False
        self._settle()
        return True

    def _on_record(self, record: Record, owners: Sequence[int]) -> None:
        channel = self._channels[owners.index(record.channel)]
        while channel.unseen and _passes(channel.unseen[0], self._rules):
            channel.take(repeats=self._judged.repeats)
        self._check_all_progress()  # otherwise the record would overtake a watermark
        first = channel.unseen[0] if channel.unseen else "nothing"
        require(first == record, "records", f"It sees {record}, but {shown_letter(first)} is next in its channel.")
        channel.unseen.pop(0)

    def _on_watermark(self, identifier: str, value: Any) -> None:
        rule, what = self._rules[identifier], f"It sees {identifier}={value}, after {self._last.get(identifier)}."
        if rule.aligned:
            chosen = next(self._taking_part)
            require(self._cut(lambda channels: _is_round(rule, value, channels, chosen)), "round", what)
            for channel in _of_round(rule, self._channels, chosen):
                channel.unseen.pop(0)
            return
        require(rule.every or value != self._last.get(identifier), "change", what)
        if identifier == EVENT_TIME:
            last = self._last.get(EVENT_TIME, LONG_MIN)
            require(value > last, "event time", what)
            require(self._cut(lambda channels: _is_time(value, channels)), "event time", what)
        else:
            require(self._cut(lambda channels: _is_combination(rule, value, channels)), "cut", what)
        before, self._last[identifier] = self._last.get(identifier), value
        self._delivered += [(rule, value), (rule, before)]  # the combination may have been the one before, at first

    def _on_status(self, idle: bool) -> None:
        require(self._cut(lambda channels: _is_idle(channels) == idle), "status", f"It sees idle={idle}.")
        self._idle = idle

    def _on_end(self) -> None:
        is_over = self._cut(lambda channels: all(channel.status == "ended" for channel in channels))
        require(is_over and not self._ended, "status", "It sees the end, but a channel has not ended.")
        self._ended = True

    def _on_crossing(self) -> None:
        require(self._cut(lambda channels: len(_held(channels)) > 1), "crossing", "The job fails.")

    def _cut(self, is_acceptable: Callable[[Sequence[_Channel]], object]) -> bool:
        """Move the cut as little as possible, so that it is acceptable. Returns whether that is possible."""
        if is_acceptable(self._channels):
            return True
        choices = [
            list(enumerate(channel.later(self._rules, repeats=self._judged.repeats))) for channel in self._channels
        ]
        for choice in sorted(product(*choices), key=lambda choice: sum(taken for taken, _ in choice)):
            channels = [channel for _, channel in choice]
            if is_acceptable(channels):
                self._channels = channels
                return True
        return False

    def _count(self, rule: Rule, value: Any) -> None:
        if not self._judged.last_values:
            return
        for channel in self._channels:
            own = channel.values.get(rule.identifier)
            if own is not None and rule.fold.includes(value, own):
                channel.counted.add(rule.identifier)

    def _settle(self) -> None:
        """Everything that was sent has been processed, except for what is held back for a reason."""
        for channel in self._channels:
            while channel.unseen and _passes(channel.unseen[0], self._rules):
                channel.take(repeats=self._judged.repeats)
            require(
                not channel.unseen or isinstance(channel.unseen[0], Signal), "records", f"Not seen: {channel.unseen}."
            )
        held = _held(self._channels)
        require(len(held) < 2, "crossing", f"Held back by {sorted(held)}, and the job does not fail.")
        for rule, value in self._delivered:
            if rule.identifier != EVENT_TIME and value is not None:
                self._count(rule, value)
        by_any = {identifier for channel in self._channels if (identifier := channel.held_by()) is not None}
        for identifier in by_any:
            missing = [one for one in self._channels if one.status == "active" and one.held_by() != identifier]
            require(missing, "blocked", f"Held back by {identifier}, which every active channel has sent.")
        self._check_all_progress()
        if self._judged.status and not self._ended:
            require(self._idle == _is_idle(self._channels), "status", f"The input says idle={self._idle}.")
        if all(channel.status == "ended" for channel in self._channels):
            self._check_end()

    def _check_all_progress(self) -> None:
        for rule in self._rules.values():
            if not rule.aligned:
                self._check_progress(rule)

    def _check_progress(self, rule: Rule) -> None:
        if rule.identifier == EVENT_TIME:
            self._check_time()
            return
        last, identifier = self._last.get(rule.identifier), rule.identifier
        active = [channel for channel in self._channels if channel.status == "active"]
        present = [channel.values[identifier] for channel in active if identifier in channel.values]
        if rule.wait and len(present) < len(active) and not rule.fold.takes_last:
            return
        if last is not None:
            self._count(rule, last)
        if rule.fold.takes_last:
            return
        if not present or (len(active) < len(self._channels) and not self._judged.progress_of_others):
            return
        now = rule.fold.combine(present)
        what = f"The active channels have sent {present}, but the last {identifier} is {last}."
        require(last is not None and not rule.fold.beyond(now, last), "progress", what)
        require(len(active) < len(self._channels) or last == now, "progress", what)

    def _check_time(self) -> None:
        live = [channel for channel in self._channels if channel.status != "ended"]
        if not self._judged.time or not live:
            return
        if not self._judged.progress_of_others and not all(channel.is_steady for channel in self._channels):
            return
        timed = [channel for channel in self._channels if not channel.is_by_clock]
        active = [channel.time for channel in timed if channel.status == "active"]
        last = self._last.get(EVENT_TIME, LONG_MIN)
        counted = [time for time in active if time >= last] if self._judged.overtakes else active
        if all(channel.is_by_clock for channel in live):
            least = PROCESSING_TIME
        elif active:
            least = min(counted, default=LONG_MIN)
        else:
            least = max((channel.time for channel in timed), default=LONG_MIN)
        require(last >= least, "progress", f"Event time is {last}, and can be {least}.")

    def _check_end(self) -> None:
        require(self._ended, "lost", "The end was not seen.")
        for number, channel in enumerate(self._channels):
            for identifier, value in channel.values.items():
                counted = identifier == EVENT_TIME or identifier in channel.counted or not self._judged.last_values
                require(counted, "lost", f"{identifier}={value} of channel {number} was part of no combination.")


class History:
    """The possible histories of the channels of one input: each is one of ``Facts``."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        channels: int,
        states: Frozen | None = None,
        judged: Judged = ALL_JUDGED,
        arriving: Arriving = as_sent,
    ) -> None:
        """The parameters are those of ``Facts``, but ``states`` has one for each possibility."""
        self._rules = rules
        self._new: Callable[[Frozen | None], Facts] = lambda state: Facts(rules, channels, state, judged, arriving)
        self._possible = [self._new(state) for state in states or (None,)]

    def frozen(self) -> Frozen:
        """The state."""
        return tuple(one.frozen() for one in self._possible)

    def status(self, channel: int) -> Status:
        """See ``Facts``."""
        return self._possible[0].status(channel)

    def unseen(self, channel: int) -> int:
        """See ``Facts``."""
        return max(one.unseen(channel) for one in self._possible)

    def move_clock(self) -> None:
        """Nothing depends on it."""

    def sent(self, channel: int, owner: int, frame: Frame) -> list[Any]:
        """See ``Facts``."""
        first, *others = self._possible
        elements = first.sent(channel, owner, frame)
        for one in others:
            one.receive(channel, elements)
        return elements

    def check(self, seen: Sequence[Seen], owners: Sequence[int]) -> bool:
        """Check what the function has seen: it must be acceptable in one of the possibilities.

        Raises:
            ViolationError: It is not.
        """
        goes_on, accepted, refused = True, dict[Frozen, Facts](), list[ViolationError]()
        rounds = sum(one[0] == "watermark" and self._rules[one[1]].aligned for one in seen)
        if not rounds and len(self._possible) == 1:
            return self._possible[0].check(seen, owners, ())
        choices = [*product(*(self._choices(channel) for channel in range(len(owners))))]
        for state, taking_part in product(self.frozen(), product(choices, repeat=rounds)):
            one = self._new(state)
            try:
                goes_on = one.check(seen, owners, taking_part)
            except ViolationError as error:
                refused.append(error)
            else:
                accepted[one.frozen()] = one
        if not accepted:
            raise refused[0]
        self._possible = [*accepted.values()]
        return goes_on

    def _choices(self, channel: int) -> tuple[bool, ...]:
        """Return the possible answers to: does the channel take part in a round?"""
        return (True,) if all(one.stays_active(channel) for one in self._possible) else (True, False)


def _is_combination(rule: Rule, value: Any, channels: Sequence[_Channel]) -> bool:
    if rule.fold.takes_last:
        return any(channel.values.get(rule.identifier) == value for channel in channels)
    active = [channel for channel in channels if channel.status == "active"]
    present = [channel.values[rule.identifier] for channel in active if rule.identifier in channel.values]
    if rule.wait and len(present) < len(active):
        return False
    others = [one.values[rule.identifier] for one in channels if one not in active and rule.identifier in one.values]
    for chosen in product((False, True), repeat=len(others)):
        counted = present + [other for other, is_chosen in zip(others, chosen, strict=True) if is_chosen]
        if counted and rule.fold.combine(counted) == value:
            return True
    return False


def _is_time(time: int, channels: Sequence[_Channel]) -> bool:
    if time == PROCESSING_TIME:
        return all(channel.is_by_clock or channel.status == "ended" for channel in channels)
    steady = [one.time for one in channels if one.status == "active" and one.is_steady]
    return time in [channel.time for channel in channels] and all(time <= own for own in steady)


def _is_round(rule: Rule, value: Any, channels: Sequence[_Channel], chosen: Sequence[bool]) -> bool:
    members = _of_round(rule, channels, chosen)
    missing = [one for one in channels if one.status == "active" and one not in members]
    values = [one.unseen[0].value for one in members]
    return bool(values) and not missing and bool(rule.fold.combine(values) == value)


def _of_round(rule: Rule, channels: Sequence[_Channel], chosen: Sequence[bool]) -> list[_Channel]:
    """The channels that are held back by the next round. ``chosen``: Whether inactive ones are, by channel."""
    held = [
        (one, is_chosen) for one, is_chosen in zip(channels, chosen, strict=True) if one.held_by() == rule.identifier
    ]
    return [one for one, is_chosen in held if is_chosen or one.status == "active"]


def _is_idle(channels: Sequence[_Channel]) -> bool:
    statuses = {channel.status for channel in channels}
    if "active" in statuses:  # they may follow the clock, and no longer count if others are idle
        statuses = {channel.status for channel in channels if not channel.is_by_clock}
    return "active" not in statuses and "idle" in statuses


def _held(channels: Sequence[_Channel]) -> set[str]:
    return {held for channel in channels if channel.status == "active" and (held := channel.held_by()) is not None}
