"""All findings of a plan, and the warnings of ``execute``.

A check reports only what the plan proves, or what it makes very likely. A program that is right as it is has no finding
with severity WARNING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsv2.aggregates.rows import EmitWindow, RunningAggregate
from dsv2.errors import PlanWarning, UnreadStreamWarning
from dsv2.extension.join.declared import DeclaredPairs
from dsv2.extension.join.unbounded import BOTH_SIDES
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.flow import Flow
from dsv2.graph.plan import AtSource, Exchange
from dsv2.graph.record_types import declared_type
from dsv2.graph.state_detection import may_keep_state
from dsv2.model.context import RuntimeExecutionMode
from dsv2.plan_view.column_findings import column_findings
from dsv2.plan_view.finding import Finding, Severity, note, warning
from dsv2.plan_view.watermark_findings import event_time_findings, watermark_findings
from dsv2.sinks import DriverSink
from dsv2.sources import IndexedSource
from dsv2.spi import WrappingFunction


def findings_of(flow: Flow, *, in_one_process: bool) -> tuple[Finding, ...]:
    """Return all findings, warnings first.

    Args:
        flow: The plan and its watermarks.
        in_one_process: Whether the runtime is one process, which has no costs of distribution and no checkpoints.
    """
    checks: list[Callable[[Flow], Iterator[Finding]]] = [
        event_time_findings,
        watermark_findings,
        _waits_for_end,
        _unread,
        _joins_without_ttl,
        _declared_by_record,
        column_findings,
        _unordered_keys,
    ]
    if not in_one_process:
        checks += [_source_parallelism, _sinks_on_driver, _without_uid]
    found = [finding for check in checks for finding in check(flow)]
    return tuple(sorted(found, key=lambda finding: finding.severity is not Severity.WARNING))


def warn_of_mistakes(plan: Plan) -> None:
    """Warn about each finding with the severity ``WARNING``, at the line that created its operator.

    Operators without a uid are left out: whether they matter depends on the checkpoint.
    """
    for finding in findings_of(Flow(plan), in_one_process=True):
        if finding.severity is Severity.WARNING:
            operator = plan.operators[finding.operators[0]]
            kind = UnreadStreamWarning if finding.code == "unread-output" else PlanWarning
            operator.warn(f"[{finding.code}] {operator} {finding.message} {finding.advice}", kind)


def _waits_for_end(flow: Flow) -> Iterator[Finding]:
    message = "emits nothing before its input has ended, but a source before it is unbounded."
    advice = (
        "Use windows that end by time or count, let a trigger or early firing fire the window, or bound the source."
    )
    for operator in flow.functions:
        never_ends = any(map(flow.may_never_end, flow.plan.edges_into[operator.id]))
        if never_ends and operator.function.dsv2_waits_for_end:
            yield warning("end-never-comes", (operator.id,), message, advice)


def _unread(flow: Flow) -> Iterator[Finding]:
    """Find outputs that nothing reads. An output with the declared type None is skipped, because it emits nothing."""
    plan = flow.plan
    read = {(edge.source, edge.output) for edge in plan.edges}
    for operator in plan.operators:
        for output in range(0 if operator.kind is OperatorKind.SINK else operator.outputs):
            if (operator.id, output) in read or declared_type(plan, operator, output) in (None, type(None)):
                continue
            if (tag := operator.side_output(output)) is not None:
                what = f"the side output {tag.name!r}"
                advice = "Read side_output(tag) of the result, or do not declare the tag."
            else:
                number = ("first ", "second ")[output] if operator.kind is OperatorKind.TWO_OUTPUT else ""
                what, advice = f"the {number}stream", "Add to_sink or process."
            message = f"emits {what}, which nothing reads: its records are lost."
            yield warning("unread-output", (operator.id,), message, advice)


def _declared_by_record(flow: Flow) -> Iterator[Finding]:
    """Find declared aggregates and joins that do not run on columns."""
    for operator in flow.functions:
        function: object = operator.function
        parts = function.written_by_user if isinstance(function, WrappingFunction) else (function,)
        for part in parts:
            if isinstance(part, RunningAggregate | EmitWindow):
                message = f"aggregates record by record instead of in columns: {part.why}."
                yield note("aggregates-by-record", (operator.id,), message, "This only matters for speed.")
            if isinstance(part, DeclaredPairs):
                message = f"joins record by record instead of on columns: {part.why}."
                yield note("joins-by-record", (operator.id,), message, "This only matters for speed.")


def _joins_without_ttl(flow: Flow) -> Iterator[Finding]:
    message = "keeps every record of both sides forever, and a source before it is unbounded."
    advice = "Pass ttl=StateTtl(...), or join with JoinMode.interval or JoinMode.window."
    for operator in flow.functions:
        function = operator.function
        layout = getattr(function, "state_layout", "")
        if layout != BOTH_SIDES or all(state.time_to_live for state in function.uses_states()):
            continue
        if any(map(flow.may_never_end, flow.plan.edges_into[operator.id])):
            yield note("join-without-ttl", (operator.id,), message, advice)


def _unordered_keys(flow: Flow) -> Iterator[Finding]:
    """Follow collections and generators, whose records are in order, to the first functions with keys."""
    plan = flow.plan
    reached: dict[int, tuple[Operator, Operator]] = {}  # the source, and the first operator with several subtasks
    advice = (
        "If their order matters, set with_parallelism(1) on the source and on what is between it and key_by. The "
        "function itself may keep its parallelism."
    )
    for operator in plan.operators:
        if isinstance(operator.body, IndexedSource):
            reached[operator.id] = operator, operator
        for edge in plan.edges_into[operator.id]:
            if edge.source not in reached:
                continue
            source, spread = reached[edge.source]
            spread = spread if spread.parallelism > 1 else operator
            if edge.exchange is not Exchange.HASH:
                reached[operator.id] = source, spread
            elif spread is not operator and not type(operator.body).__module__.startswith("dsv2."):
                message = (
                    f"receives the records of a key in no particular order, because {spread.parallelism} subtasks of "
                    f"{spread} take turns."
                )
                yield note("no-order-of-keys", (operator.id, source.id), message, advice)


def _source_parallelism(flow: Flow) -> Iterator[Finding]:
    plan = flow.plan
    for head, edges in plan.edges_out_of_chains.items():
        source = plan.operators[head]
        for edge in edges if source.kind is OperatorKind.SOURCE else ():
            target = plan.operators[edge.target]
            if not edge.by_parallelism or not _could_save_exchange(source, target, alone=len(edges) == 1):
                continue
            message = (
                f"has parallelism {target.parallelism}, but its source has {source.parallelism}, so each record is "
                f"serialized and exchanged before it. With the same parallelism its subtasks would read the source."
            )
            advice = (
                f"Set with_parallelism({target.parallelism}) on the source, if it has enough splits, or "
                f"with_parallelism({source.parallelism}) on the function."
            )
            yield note("source-parallelism", (target.id, source.id), message, advice)


def _could_save_exchange(source: Operator, target: Operator, *, alone: bool) -> bool:
    """Return whether ``target`` would need no exchange if it had the parallelism of ``source``."""
    if target.kind is OperatorKind.SINK:
        return False
    chained = AtSource.NOTHING < target.at_source <= source.at_source and len(target.input_keys) == 1
    return chained or (alone and source.at_source is AtSource.MICRO_BATCHES)


def _sinks_on_driver(flow: Flow) -> Iterator[Finding]:
    advice = "This suits small results. For large ones use FileSink, or a sink of a connector."
    for operator in flow.plan.operators:
        if isinstance(operator.body, DriverSink):
            name = type(operator.body).__name__
            message = f"{name} is written on the driver, through which all of its records pass."
            yield note("driver-sink", (operator.id,), message, advice)


def _without_uid(flow: Flow) -> Iterator[Finding]:
    if flow.plan.mode is not RuntimeExecutionMode.STREAMING:
        return
    for operator in flow.plan.operators:
        if not operator.automatic_uid or not may_keep_state(operator.body):
            continue
        if operator.twin is not None:
            message = f"differs from the operator at {operator.twin} only in its order, so a checkpoint is refused."
            yield warning("no-uid", (operator.id,), message, "Set a uid on both: with_uid(...).")
        elif operator.kind is not OperatorKind.SOURCE:
            message = "has state and no uid. A restart is refused if its class, states or inputs have changed."
            yield note("no-uid", (operator.id,), message, "Set a uid: with_uid(...).")
