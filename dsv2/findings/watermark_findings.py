"""Findings about watermarks of the program: those that never arrive, or that nothing acts on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.findings.finding import Finding, Severity
from dsv2.findings.flow import OF_EVENT_TIME, Flow, handlers, key_handlers, overridden_for_keys
from dsv2.functions import ProcessFunction
from dsv2.graph import Edge, Operator, OperatorKind, handlers_of
from dsv2.graph.per_key import receives_keys
from dsv2.watermark import AtLeastChannels

__all__ = ("watermark_findings",)

_UNDECLARED = "If a function there emits it, declare it there as well."
_NOT_DECLARED = (
    f"Check which input sends the watermark, and whether it is declared with default_handling_strategy_ignore(). "
    f"{_UNDECLARED}"
)


def watermark_findings(flow: Flow) -> Iterator[Finding]:
    """Find watermarks that are awaited but never sent, callbacks that are never called, and unhandled watermarks."""
    for operator in flow.plan.operators:
        if isinstance(operator.body, ProcessFunction):
            yield from _waits_for_input(operator, flow)
            yield from _barrier_never_sent(operator, flow)
            yield from _waits_for_broadcast(operator, flow)
            yield from _never_called(operator, flow)
            yield from _addressed_without_effect(operator, flow)
            yield from _keeps_every_key(operator, flow)
            yield from _too_few_channels(operator, flow)
    yield from _unhandled(flow)


def _waits_for_input(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find watermarks that wait for an input on which nothing emits them."""
    edges = flow.plan.edges_into[operator.id]
    others = [other for other in flow.downstream(operator) if other is not operator]
    for identifier in sorted(flow.received(operator) - OF_EVENT_TIME):
        policy = flow.plan.declarations[identifier].combination_policy
        combined = len(edges) > 1 and (operator.kind is OperatorKind.UNION or policy.combine_across_inputs)
        if policy.barrier is not None or not combined or not policy.combine_wait_for_all_channels or not others:
            continue
        for edge, endless in _silent(edges, identifier, flow):
            until = "It never ends, so" if endless else "Until it has ended,"
            yield Finding(
                "waits-for-input",
                Severity.WARNING if endless else Severity.NOTE,
                (operator.id, edge.source),
                f"waits for the watermark {identifier!r} from all of its inputs, but nothing declares it on input "
                f"{edge.input + 1}. {until} functions after it do not receive the watermark.",
                f"Emit it on input {edge.input + 1} as well, or declare it without combine_wait_for_all_channels. "
                f"{_UNDECLARED}",
            )


def _barrier_never_sent(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find inputs that block the others at a barrier that they never send."""
    edges = flow.plan.edges_into[operator.id]
    for identifier in sorted(flow.received(operator)):
        wait = flow.plan.declarations[identifier].combination_policy.barrier
        if wait is None:
            continue
        for edge, endless in _silent(edges, identifier, flow):
            until = "it ends, which it never does" if endless else "it has ended"
            yield Finding(
                "barrier-never-sent",
                Severity.WARNING if endless else Severity.NOTE,
                (operator.id, edge.source),
                f"stops all of its inputs at the barrier {identifier!r}, but nothing declares it on input "
                f"{edge.input + 1}. The others are blocked until {until} ({wait}).",
                f"Emit it on input {edge.input + 1} as well. {_UNDECLARED}",
            )


def _silent(edges: Sequence[Edge], identifier: str, flow: Flow) -> Iterator[tuple[Edge, bool]]:
    """The edges on which nothing sends a watermark, and whether they may never end."""
    return ((edge, flow.may_never_end(edge)) for edge in edges if identifier not in flow.arriving(edge))


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
        yield Finding(
            "broadcast-wait-never-ends",
            Severity.WARNING,
            (operator.id, side.source),
            f"holds its main input until the broadcast side has sent {wait}, but {reason}. The job fails after "
            f"{wait.max_records:,} records.",
            advice,
        )


def _never_called(operator: Operator, flow: Flow) -> Iterator[Finding]:
    hidden = OF_EVENT_TIME if operator.function.dsv2_has_event_time else frozenset[str]()
    for number, name in handlers(operator):
        delivered = flow.delivered(operator, number) - hidden - flow.plan.per_key
        if not delivered <= operator.passes_on:
            continue
        withheld = flow.withheld(flow.plan.edges_into[operator.id][number]) - hidden - flow.plan.per_key
        if addressed := delivered | withheld:
            yield _uncalled(
                operator,
                f"overrides {name}, but all watermarks that arrive there are addressed to other operators: "
                f"{', '.join(sorted(addressed))}.",
                "Address them to this operator as well: deliver_to(...) with its uid.",
                Severity.NOTE,  # the class may be used elsewhere as well
            )
        else:
            yield _uncalled(
                operator, f"overrides {name}, but nothing upstream of that input declares a watermark.", _NOT_DECLARED
            )
    for number, name in overridden_for_keys(operator):
        if not receives_keys(operator):
            problem = f"overrides {name}, but its stream has no keys, so per-key watermarks pass it by."
            yield _uncalled(operator, problem, "Call key_by before it.")
        elif not flow.delivered(operator, number) & flow.plan.per_key:
            problem = f"overrides {name}, but nothing upstream of that input declares a per-key watermark."
            yield _uncalled(operator, problem, _NOT_DECLARED)
    for handler in handlers_of(operator.body, operator.kind):
        has = f"has the handler {handler.method} for the watermark {handler.identifier!r}"
        if handler.identifier in operator.passes_on:
            yield _uncalled(
                operator,
                f"{has}, which is addressed to other operators.",
                "Address it to this operator as well: deliver_to(...) with its uid.",
            )
        elif handler.identifier not in flow.delivered(operator, handler.input):
            yield _uncalled(operator, f"{has}, but nothing upstream of that input declares it.", _NOT_DECLARED)


def _uncalled(operator: Operator, problem: str, advice: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding("handler-never-called", severity, (operator.id,), problem, advice)


def _addressed_without_effect(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find operators that a watermark is addressed to, but that do not handle it, or that it cannot reach."""
    for identifier in flow.addressed(operator):
        if identifier not in flow.received(operator):
            yield Finding(
                "group-member-not-reached",
                Severity.NOTE,
                (operator.id,),
                f"is in a group that the watermark {identifier!r} is addressed to, but not downstream of an operator "
                f"that declares it.",
                "Remove it from the group, or declare the watermark in the function before it that emits it.",
            )
        elif not flow.handles(operator, identifier):
            yield Finding(
                "addressed-without-handler",
                Severity.WARNING,
                (operator.id,),
                f"is addressed by the watermark {identifier!r}, but does not override a callback for it.",
                "Override on_watermark, or address the watermark to the operator that handles it.",
            )


def _keeps_every_key(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find per-key watermarks whose values are kept for every key as long as the job runs."""
    edges = flow.plan.edges_into[operator.id]
    for number, _ in key_handlers(operator):
        for identifier in sorted(flow.arriving(edges[number])):
            scope = flow.plan.declarations[identifier].scope
            if scope.key_type is None or scope.expires_after_ms is not None or not flow.may_never_end(edges[number]):
                continue
            yield Finding(
                "per-key-without-expiry",
                Severity.NOTE,
                (operator.id,),
                f"keeps the values of the watermark {identifier!r} for every key, and a source before it is unbounded.",
                "If keys come and go, declare it with expire_after(...).",
            )


def _too_few_channels(operator: Operator, flow: Flow) -> Iterator[Finding]:
    """Find watermarks that are delivered when k channels have reached a value, where there are fewer than k."""
    for edge in flow.plan.edges_into[operator.id]:
        channels = 1 if flow.plan.is_chained(edge) else flow.plan.channels_of(edge)
        for identifier in sorted(flow.arriving(edge)):
            function = flow.plan.declarations[identifier].combination_policy.combination_function
            too_few = isinstance(function, AtLeastChannels) and channels < function.channels
            if too_few and flow.handles(operator, identifier):
                yield Finding(
                    "too-few-channels",
                    Severity.WARNING,
                    (operator.id, edge.source),
                    f"never receives the watermark {identifier!r}: it is combined with {function.value}, and each "
                    f"subtask has {channels} on input {edge.input + 1}.",
                    "Declare it with fewer channels, or give the operator that emits it a higher parallelism.",
                )


def _unhandled(flow: Flow) -> Iterator[Finding]:
    for identifier in (name for name in flow.plan.declarations if name not in OF_EVENT_TIME):
        if not any(flow.handles(operator, identifier) for operator in flow.receivers(identifier)):
            per_key = flow.plan.declarations[identifier].scope.key_type is not None
            receiver = "keyed function that it reaches overrides on_key_watermark"
            if not per_key:
                receiver = "function that it reaches overrides on_watermark"
            declared_by = tuple(number for number, declared in flow.declared.items() if identifier in declared)
            if flow.plan.declarations[identifier].combination_policy.barrier is not None:
                yield Finding(
                    "unhandled-barrier",
                    Severity.WARNING,
                    declared_by,
                    f"declares the barrier {identifier!r}, but no function that it reaches overrides on_watermark. It "
                    f"blocks channels for nothing.",
                    "Handle it downstream, or do not declare it.",
                )
                continue
            yield Finding(
                "unhandled-watermark",
                Severity.NOTE,
                declared_by,
                f"declares the watermark {identifier!r}, but no {receiver}.",
                "Handle it downstream, or do not declare it.",
            )
