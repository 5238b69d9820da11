"""The sentence about what holds a watermark back, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsv2.base.printable import printable
from dsv2.base.quantities import counted, duration_text, time_text
from dsv2.jobs.progress import SubtaskProgress
from dsv2.jobs.summary.event_time import has_ended
from dsv2.jobs.watermark_report.blockers import BarrierWaiting
from dsv2.jobs.watermark_report.model import Cause
from dsv2.jobs.watermark_report.route import Route
from dsv2.jobs.watermark_report.trace import Trace, uid_of
from dsv2.plan_view.model import OperatorView
from dsv2.watermark.event_time import PROCESSING_TIME
from dsv2.watermark.holders import Order
from dsv2.watermark.value_text import ShownValue


@dataclass(frozen=True, slots=True)
class Facts:
    """The subject of a sentence.

    Attributes:
        route: The watermark.
        operator: The operator.
        report: The progress of its subtask.
        value: The value of the subtask, or None.
        trace: The trace of its holders.
        received: The value that the cause has received, if it is a function that has polled it.
        records_in: The number of records that the cause has received. None: unknown.
        lasted_ms: For how long the channel that holds it back has not moved. None: it is moving, or this is unknown.
        waiting: The open round of a barrier. None: there is none.
        now_ms: The time of the report.
    """

    route: Route
    operator: OperatorView
    report: SubtaskProgress | None
    value: ShownValue | None
    trace: Trace
    received: ShownValue | None
    records_in: int | None
    lasted_ms: int | None
    now_ms: int
    waiting: BarrierWaiting | None = None


def sentence(facts: Facts) -> str:
    """Return the value of an operator, the channel that holds it back, and the cause, in words."""
    parts = (_value(facts), *_channel(facts), *_cause(facts))
    return f"{'; '.join(parts)}.{_held_records(facts)}"


def advice(facts: Facts) -> str:
    """Return what can be done about it, or ""."""
    trace = facts.trace
    match trace.cause:
        case Cause.QUIET_SPLIT | Cause.NO_RECORDS if _idle_after(facts) == 0:
            return "Call with_idleness on the builder of its watermarks, so that nothing waits for it."
        case Cause.NOT_DECLARED if facts.route.is_event_time:
            return (
                "Process the stream with a generator of EventTimeExtension.new_watermark_generator_builder(...), or "
                "pass watermarks=... to from_source."
            )
        case Cause.NOT_DECLARED:
            return "Declare and emit it there as well."
        case Cause.NOT_FORWARDED if _is_withheld(facts):
            return "Address it to this operator as well: deliver_to(...) with its uid."
        case Cause.NOT_FORWARDED:
            return "Declare it with default_handling_strategy_forward()."
        case Cause.POLLED:
            return "Return PEEK, or emit the watermark in the function."
        case Cause.BROADCAST_WAIT if (until := _waiting(facts).broadcast_wait_until) is not None:
            return f"Find out what holds the watermark {until!r} back."
        case Cause.PAUSED_SPLIT if trace.behind is not None and trace.behind is not trace.at:
            return f"Find out what holds the source {_title(trace.behind)} back."
    return ""


def _value(facts: Facts) -> str:
    route, value = facts.route, facts.value
    who = _title(facts.operator)
    if facts.operator.parallelism > 1 and facts.report is not None:
        who = f"{who}, subtask {facts.report.subtask},"
    if facts.report is None:
        return f"Nothing is known of {_name(route)} in {who}"
    if value is None:
        return f"{who} has no event time yet" if route.is_event_time else f"{who} has not received {_name(route)} yet"
    if facts.trace.cause is Cause.ENDED:
        return f"The last {_name(route).removeprefix('the ')} of {who} is {_text(value, route)}"
    name = _name(route)
    return f"{name[0].upper()}{name[1:]} of {who} is {_text(value, route)}"


def _channel(facts: Facts) -> Iterator[str]:
    """The channel that holds the value back, and for how long."""
    hold, cause = facts.trace.first, facts.trace.cause
    if hold is None or hold.channel is None or cause is Cause.BROADCAST_WAIT:
        return
    if cause in (Cause.NOT_DECLARED, Cause.NOT_FORWARDED) and len(facts.trace.path) == 2:
        return  # the cause names the input
    place, sender = _place(facts), _sender(facts)
    name = f"{place} ({sender})" if place else sender
    if hold.channel.idle and cause in (Cause.IDLE, Cause.NO_RECORDS):
        yield "all of its channels are idle"
    elif hold.channel.idle:
        yield f"{name} is idle, and has not switched to the wall clock as the others have"
    elif cause is Cause.NOTHING:
        if place and facts.value is not True:
            yield f"{name} {_furthest(facts)}"
    elif facts.route.of_channel(hold.channel) is None:
        yield f"{name} has not sent {_missing(facts)}{_blocked(facts)}"
    elif facts.lasted_ms is None:
        yield f"{name} {_furthest(facts)}"
    else:
        yield f"{name} has not moved for {duration_text(facts.lasted_ms)}"


def _furthest(facts: Facts) -> str:
    is_any = not facts.route.is_event_time and facts.route.order is Order.ANY
    return "has not changed for longest" if is_any else "is the furthest behind"


def _missing(facts: Facts) -> str:
    """The value that the channel has not sent."""
    hold, route = facts.trace.first, facts.route
    if hold is not None and hold.channel is not None and route.of_channel(hold.channel) is not None:
        return "another one" if route.order is Order.ANY else "a greater one"
    if route.is_event_time:
        return "any"
    if facts.waiting is not None:
        return f"{_text(facts.waiting.value, route)} or a later one"
    return "the next one" if route.is_aligned and facts.value is not None else "it"


def _blocked(facts: Facts) -> str:
    """Return the number of channels that wait for a barrier, and the time they wait."""
    waiting = facts.waiting
    if waiting is None:
        return ""
    one = waiting.channels == 1
    who = counted(waiting.channels, "channel")
    if facts.lasted_ms is None:
        return f", for which {who} {'waits' if one else 'wait'}"
    return f", for which {who} {'has' if one else 'have'} waited for {duration_text(facts.lasted_ms)}"


def _place(facts: Facts) -> str:
    """The input and the channel where there are several."""
    hold, report = facts.trace.first, facts.report
    assert hold is not None
    assert report is not None
    parts = [f"input {hold.input + 1}"] if len(report.inputs) > 1 else []
    if hold.channel is not None and report.inputs[hold.input].channel_count > 1:
        parts.append(f"channel {hold.channel.channel}")
    return ", ".join(parts)


def _sender(facts: Facts) -> str:
    hold, report = facts.trace.first, facts.report
    assert hold is not None
    channel = None if hold.channel is None else hold.channel.channel
    subtask = None if report is None else report.subtask
    return _subtask(*facts.route.upstream(facts.operator, subtask, hold.input, channel))


def _cause(facts: Facts) -> Iterator[str]:
    trace = facts.trace
    is_direct = len(trace.path) == 2  # then the sender has just been named
    it = "it" if is_direct else _subtask(trace.at, trace.subtask)
    match trace.cause:
        case Cause.NOTHING:
            if facts.value is not True and facts.value != PROCESSING_TIME:
                yield "it advances"
        case Cause.ENDED:
            yield _end(facts) if len(trace.path) == 1 else f"the input of {it} has ended"
        case Cause.IDLE:
            yield f"{_subtask(trace.at, trace.subtask)} is idle"
        case Cause.NOT_DECLARED | Cause.NOT_FORWARDED:
            yield _dead_end(facts)
        case Cause.POLLED:
            value = "" if facts.received is None else f" {_text(facts.received, facts.route)}"
            yield f"{it} has received{value}, returned POLL, and has not emitted it"
        case Cause.NOT_EMITTED:
            yield _not_emitted(facts, it)
        case Cause.NO_RECORDS:
            yield f"the source {_title(trace.at)} has not produced any record{_idleness(facts)}"
        case Cause.QUIET_SPLIT | Cause.BACKLOG | Cause.PAUSED_SPLIT:
            assert trace.split is not None
            name = repr(trace.split.split)
            yield f"{f'its split {name}' if is_direct else f'split {name} of {_title(trace.at)}'} {_split(facts)}"
        case Cause.BROADCAST_WAIT:
            waiting = _waiting(facts)
            who = "it" if len(trace.path) == 2 else _title(waiting)
            yield f"{who} waits for the broadcast side ({_title(trace.at)}): {_broadcast(waiting)}"
        case _:  # UNKNOWN
            yield _unknown(facts)


def _unknown(facts: Facts) -> str:
    if facts.report is not None:
        return "the progress of the job does not tell what holds it back"
    if facts.operator.level == 0:
        return "it runs in the tasks that read its source, which report no watermarks"
    return "it has not reported any progress yet"


def _end(facts: Facts) -> str:
    is_all = facts.report is None or all(map(has_ended, facts.report.inputs))
    return "its input has ended" if is_all else "the input on which it arrives has ended"


def _dead_end(facts: Facts) -> str:
    """Explain why the watermark cannot arrive on an input."""
    trace, route = facts.trace, facts.route
    receiver = trace.path[-2]
    sender = _subtask(trace.at, trace.subtask)
    if trace.cause is Cause.NOT_FORWARDED and _is_withheld(facts):
        return "it is addressed to other operators"
    if trace.cause is Cause.NOT_FORWARDED:
        who = sender if route.receives(trace.at) else f"something upstream of {sender}"
        return f"{who} does not forward it, because of its handling strategy"
    does = "generates event time" if route.is_event_time else "declares it"
    operator = _operator(facts, receiver.operator)
    if len(route.edges_into(operator)) == 1 or receiver.input is None:
        return f"nothing upstream of {_title(operator)} {does}"
    of = "" if len(trace.path) == 2 else f" of {_title(operator)}"
    return f"nothing upstream of input {receiver.input + 1}{of} ({sender}) {does}"


def _not_emitted(facts: Facts, it: str) -> str:
    trace, route = facts.trace, facts.route
    if trace.split is not None:
        return f"the new records of its split {trace.split.split!r} have no greater timestamps"
    declares = "declares it" if route.declares(trace.at) else "emits it"
    received = "" if facts.records_in is None else f", has received {counted(facts.records_in, 'record')}"
    return f"{it} {declares}{received}, and has not emitted {_missing(facts)}"


def _split(facts: Facts) -> str:
    trace = facts.trace
    split = trace.split
    assert split is not None
    if trace.cause is Cause.BACKLOG:
        return f"has a backlog of {counted(split.lag or 0, 'record')}"
    if trace.cause is Cause.PAUSED_SPLIT:
        behind = "another source" if trace.behind is None else f"the source {_title(trace.behind)}"
        if trace.behind is trace.at:
            behind = "another split of this source"
        return f"is paused by watermark alignment, because {behind} is behind"
    if split.moved_at_ms is None:
        return f"has not had any record yet{_idleness(facts)}"
    return f"has had no new records for {duration_text(max(0, facts.now_ms - split.moved_at_ms))}{_idleness(facts)}"


def _idleness(facts: Facts) -> str:
    idle_after = _idle_after(facts)
    if idle_after is None:
        return ""
    return f", and is idle only after {duration_text(idle_after)}" if idle_after else ", and no idleness is configured"


def _idle_after(facts: Facts) -> int | None:
    """The idleness of what generates event time, on the way to the cause. None: nothing does."""
    hold = facts.trace.first
    if not facts.route.is_event_time or (hold is not None and hold.channel is not None and hold.channel.idle):
        return None
    operators = {operator.uid: operator for operator in facts.route.view.operators}
    found = [operators[step.operator].idle_after_ms for step in facts.trace.path if step.operator in operators]
    return next((idle_after for idle_after in reversed(found) if idle_after is not None), None)


def _broadcast(waiting: OperatorView) -> str:
    if waiting.broadcast_wait_until is None:
        return "it has not ended"
    return f"{waiting.broadcast_wait} has not arrived"


def _waiting(facts: Facts) -> OperatorView:
    return _operator(facts, facts.trace.path[-2].operator)


def _operator(facts: Facts, uid: str) -> OperatorView:
    return next(operator for operator in facts.route.view.operators if uid_of(operator) == uid)


def _held_records(facts: Facts) -> str:
    held = 0 if facts.report is None else facts.report.records_held
    if not held or not (facts.route.is_aligned or facts.trace.cause is Cause.BROADCAST_WAIT):
        return ""
    is_plain = facts.trace.cause is Cause.BROADCAST_WAIT or facts.route.is_barrier
    why = "" if is_plain else "The watermark is aligned: "
    return f" {why}{counted(held, 'record')} {'waits' if held == 1 else 'wait'} for it."


def _name(route: Route) -> str:
    kind = "barrier" if route.is_barrier else "watermark"
    return "event time" if route.is_event_time else f"the {kind} {route.identifier!r}"


def _text(value: ShownValue, route: Route) -> str:
    if not route.is_event_time or not isinstance(value, int):
        return printable(str(value))
    return "the wall clock" if value == PROCESSING_TIME else time_text(value)


def _title(operator: OperatorView) -> str:
    return repr(operator.title)


def _subtask(operator: OperatorView, subtask: int | None) -> str:
    return (
        _title(operator) if subtask is None or operator.parallelism == 1 else f"{_title(operator)}, subtask {subtask}"
    )


def _is_withheld(facts: Facts) -> bool:
    """Return whether the watermark does not arrive because it is addressed to other operators."""
    receiver = _operator(facts, facts.trace.path[-2].operator)
    return any(map(facts.route.is_withheld, facts.route.edges_into(receiver)))
