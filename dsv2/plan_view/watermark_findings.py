"""Findings about watermarks of the program: those that never arrive, or that nothing acts on."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.extension.event_time.generator import REPLACED, WatermarkGenerator
from dsv2.graph import Edge, Operator, OperatorKind, handlers_of
from dsv2.graph.flow import OF_EVENT_TIME, Flow, handlers, key_handlers, overridden_for_keys
from dsv2.graph.per_key import receives_keys
from dsv2.plan_view.finding import Finding, Severity, note, warning
from dsv2.sources import Source
from dsv2.state import TtlTimeCharacteristic
from dsv2.watermark import AtLeastChannels
from dsv2.watermark.event_time import EVENT_TIME, USE_PROCESSING_TIME

_TIME = frozenset((EVENT_TIME, USE_PROCESSING_TIME))
_ADVICE = (
    "Process the stream with a generator of EventTimeExtension.new_watermark_generator_builder(...), or pass "
    "watermarks=... to from_source."
)


def event_time_findings(flow: Flow) -> Iterator[Finding]:
    """Find functions without event time, inputs that hold it back, and generators that make records late."""
    for operator in flow.functions:
        if isinstance(operator.body, WatermarkGenerator):
            yield from _of_generator(operator, flow)
        if _TIME.isdisjoint(flow.declared[operator.id]):
            edges = flow.plan.edges_into[operator.id]
            without = [edge for edge in edges if _TIME.isdisjoint(flow.arriving(edge))]
            if len(without) == len(edges):
                yield from _no_time(operator)
            elif without:
                yield from _stops(operator, without, flow)


def _no_time(operator: Operator) -> Iterator[Finding]:
    if _waits(operator):
        message = (
            "waits for event time, but nothing upstream generates it: its timers and windows, and the time to live of "
            "its state, only advance at the end of the input."
        )
        yield warning("no-event-time", (operator.id,), message, _ADVICE)


def _stops(operator: Operator, without: list[Edge], flow: Flow) -> Iterator[Finding]:
    waiting = next((other for other in flow.downstream(operator) if _waits(other)), None)
    if waiting is None:
        return
    who = "its" if waiting is operator else f"the {waiting}'s"
    for edge in without:
        place = f"combines the event time of its inputs, but nothing generates it on input {edge.input + 1}."
        ends = (operator.id, edge.source)
        if flow.may_never_end(edge):
            message = f"{place} It never ends, so {who} event time does not advance."
            yield warning("event-time-stops", ends, message, _ADVICE)
        elif operator.kind is not OperatorKind.TWO_INPUT_BROADCAST or edge.input == 0:  # a side input is read first
            message = f"{place} Until it has ended, {who} event time does not advance."
            yield note("event-time-stops", ends, message, _ADVICE)


def _of_generator(operator: Operator, flow: Flow) -> Iterator[Finding]:
    (edge,) = flow.plan.edges_into[operator.id]
    if not REPLACED.isdisjoint(flow.arriving(edge)):
        code = "event-time-replaced"
        message = (
            "begins event time again from its own timestamps. The event time that is generated upstream ends here."
        )
        advice = "If only one of them is meant, remove the other generator."
    elif isinstance(flow.plan.operators[edge.source].body, Source):
        code = "generator-after-splits"
        message = "sees all splits of a reader as one stream. If a split lags behind the others, its records are late."
        advice = "Build a strategy with build_as_watermark_strategy() and pass it to from_source(..., watermarks=...)."
    else:
        return
    yield note(code, (operator.id, edge.source), message, advice)


def _waits(operator: Operator) -> bool:
    function = operator.function
    if function.dsv2_waits_for_event_time:
        return True
    ttls = [declaration.time_to_live for declaration in function.uses_states()]
    return any(ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME for ttl in ttls)


_UNDECLARED = "If a function there emits it, declare it there as well."
_NOT_DECLARED = (
    f"Check which input sends the watermark, and whether it is declared with default_handling_strategy_ignore(). "
    f"{_UNDECLARED}"
)


def watermark_findings(flow: Flow) -> Iterator[Finding]:
    """Find watermarks that are awaited but never sent, callbacks that are never called, and unhandled watermarks."""
    for operator in flow.functions:
        yield from _silent_inputs(operator, flow)
        yield from _waits_for_broadcast(operator, flow)
        yield from _never_called(operator, flow)
        yield from _addressed_without_effect(operator, flow)
        yield from _keeps_every_key(operator, flow)
        yield from _too_few_channels(operator, flow)
    yield from _unhandled(flow)


def _silent_inputs(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find inputs on which nothing emits a watermark that the other inputs, or the functions behind them, wait for."""
    edges = flow.plan.edges_into[operator.id]
    leads_on = any(other is not operator for other in flow.downstream(operator))
    for identifier in sorted(flow.received(operator)):
        policy = flow.plan.declarations[identifier].combination_policy
        combined = len(edges) > 1 and (operator.kind is OperatorKind.UNION or policy.combine_across_inputs)
        waits = combined and policy.combine_wait_for_all_channels and leads_on and identifier not in OF_EVENT_TIME
        for edge in edges if waits or policy.barrier is not None else ():
            if identifier in flow.arriving(edge):
                continue
            endless = flow.may_never_end(edge)
            if policy.barrier is not None:
                code, until = "barrier-never-sent", "it ends, which it never does" if endless else "it has ended"
                problem = f"stops all of its inputs at the barrier {identifier!r}"
                effect = f"The others are blocked until {until} ({policy.barrier})."
                or_else = ""
            else:
                code, until = "waits-for-input", "It never ends, so" if endless else "Until it has ended,"
                problem = f"waits for the watermark {identifier!r} from all of its inputs"
                effect = f"{until} functions after it do not receive the watermark."
                or_else = ", or declare it without combine_wait_for_all_channels"
            message = f"{problem}, but nothing declares it on input {edge.input + 1}. {effect}"
            advice = f"Emit it on input {edge.input + 1} as well{or_else}. {_UNDECLARED}"
            severity = Severity.WARNING if endless else Severity.NOTE
            yield Finding(code, severity, (operator.id, edge.source), message, advice)


def _waits_for_broadcast(operator: Operator, flow: Flow) -> Iterator[Finding]:
    wait = operator.broadcast_wait
    if wait is None:
        return
    side = flow.plan.edges_into[operator.id][1]
    reason = None
    if wait.identifier is not None and wait.identifier not in flow.arriving(side):
        reason = "nothing declares it there"
        advice = f"Declare and emit it on the broadcast side. {_UNDECLARED}"
    elif wait.identifier is None and flow.may_never_end(side):
        reason = "it has an unbounded source"
        advice = "Wait for a watermark of the broadcast side: WaitForBroadcast(until=...)."
    if reason is not None:
        message = (
            f"holds its main input until the broadcast side has sent {wait}, but {reason}. The job fails after "
            f"{wait.max_records:,} records."
        )
        yield warning("broadcast-wait-never-ends", (operator.id, side.source), message, advice)


def _never_called(operator: Operator, flow: Flow) -> Iterator[Finding]:
    hidden = OF_EVENT_TIME if operator.function.dsv2_has_event_time else frozenset[str]()
    for number, name in handlers(operator):
        delivered = flow.delivered(operator, number) - hidden - flow.plan.per_key
        if not delivered <= operator.passes_on:
            continue
        withheld = flow.withheld(flow.plan.edges_into[operator.id][number]) - hidden - flow.plan.per_key
        if addressed := ", ".join(sorted(delivered | withheld)):  # a note: the class may be used elsewhere as well
            problem = f"overrides {name}, but all watermarks that arrive there are addressed to other operators: "
            advice = "Address them to this operator as well: deliver_to(...) with its uid."
            yield note("handler-never-called", (operator.id,), f"{problem}{addressed}.", advice)
        else:
            problem = f"overrides {name}, but nothing upstream of that input declares a watermark."
            yield warning("handler-never-called", (operator.id,), problem, _NOT_DECLARED)
    for problem, advice in _uncalled(operator, flow):
        yield warning("handler-never-called", (operator.id,), problem, advice)


def _uncalled(operator: Operator, flow: Flow) -> Iterator[tuple[str, str]]:
    """Yield problems of callbacks for per-key watermarks and handlers of one watermark, with remedies."""
    for number, name in overridden_for_keys(operator):
        if not receives_keys(operator):
            problem = f"overrides {name}, but its stream has no keys, so per-key watermarks pass it by."
            yield problem, "Call key_by before it."
        elif not flow.delivered(operator, number) & flow.plan.per_key:
            problem = f"overrides {name}, but nothing upstream of that input declares a per-key watermark."
            yield problem, _NOT_DECLARED
    for handler in handlers_of(operator.body, operator.kind):
        has = f"has the handler {handler.method} for the watermark {handler.identifier!r}"
        if handler.identifier in operator.passes_on:
            advice = "Address it to this operator as well: deliver_to(...) with its uid."
            yield f"{has}, which is addressed to other operators.", advice
        elif handler.identifier not in flow.delivered(operator, handler.input):
            yield f"{has}, but nothing upstream of that input declares it.", _NOT_DECLARED


def _addressed_without_effect(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find operators that a watermark is addressed to, but that do not handle it, or that it cannot reach."""
    for identifier in flow.addressed(operator):
        if identifier not in flow.received(operator):
            message = (
                f"is in a group that the watermark {identifier!r} is addressed to, but not downstream of an operator "
                f"that declares it."
            )
            advice = "Remove it from the group, or declare the watermark in the function before it that emits it."
            yield note("group-member-not-reached", (operator.id,), message, advice)
        elif not flow.handles(operator, identifier):
            message = f"is addressed by the watermark {identifier!r}, but does not override a callback for it."
            advice = "Override on_watermark, or address the watermark to the operator that handles it."
            yield warning("addressed-without-handler", (operator.id,), message, advice)


def _keeps_every_key(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find per-key watermarks whose values are kept for every key as long as the job runs."""
    for number, _ in key_handlers(operator):
        edge = flow.plan.edges_into[operator.id][number]
        for identifier in sorted(flow.arriving(edge) & flow.plan.per_key if flow.may_never_end(edge) else ()):
            if flow.plan.declarations[identifier].scope.expires_after_ms is None:
                message = (
                    f"keeps the values of the watermark {identifier!r} for every key, and a source before it is "
                    f"unbounded."
                )
                advice = "If keys come and go, declare it with expire_after(...)."
                yield note("per-key-without-expiry", (operator.id,), message, advice)


def _too_few_channels(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find watermarks that are delivered when k channels have reached a value, where there are fewer than k."""
    advice = "Declare it with fewer channels, or give the operator that emits it a higher parallelism."
    for edge in flow.plan.edges_into[operator.id]:
        channels = 1 if flow.plan.is_chained(edge) else flow.plan.channels_of(edge)
        for identifier in sorted(flow.arriving(edge)):
            function = flow.plan.declarations[identifier].combination_policy.combination_function
            too_few = isinstance(function, AtLeastChannels) and channels < function.channels
            if too_few and flow.handles(operator, identifier):
                message = (
                    f"never receives the watermark {identifier!r}: it is combined with {function.value}, and each "
                    f"subtask has {channels} on input {edge.input + 1}."
                )
                yield warning("too-few-channels", (operator.id, edge.source), message, advice)


def _unhandled(flow: Flow) -> Iterator[Finding]:
    for identifier in (name for name in flow.plan.declarations if name not in OF_EVENT_TIME):
        if any(flow.handles(operator, identifier) for operator in flow.receivers(identifier)):
            continue
        receiver = "function that it reaches overrides on_watermark"
        if identifier in flow.plan.per_key:
            receiver = "keyed function that it reaches overrides on_key_watermark"
        is_barrier = flow.plan.declarations[identifier].combination_policy.barrier is not None
        what, cost = ("barrier", " It blocks channels for nothing.") if is_barrier else ("watermark", "")
        yield Finding(
            "unhandled-barrier" if is_barrier else "unhandled-watermark",
            Severity.WARNING if is_barrier else Severity.NOTE,
            tuple(number for number, declared in flow.declared.items() if identifier in declared),
            f"declares the {what} {identifier!r}, but no {receiver}.{cost}",
            "Handle it downstream, or do not declare it.",
        )
