"""Collects the operators of a pipeline and builds the checked, frozen plan."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from dsv2.base.notebook_cells import shown_file
from dsv2.errors import ConfigurationError, PlanError, WatermarkDeclarationError
from dsv2.functions import ProcessFunction
from dsv2.graph.addresses import with_addresses
from dsv2.graph.broadcast_wait import WaitForBroadcast
from dsv2.graph.callbacks import check_callbacks
from dsv2.graph.checks import check_record_classes, check_states, check_unions, check_waits
from dsv2.graph.error_policies import check_dead_letters, policy_of
from dsv2.graph.flow import Flow
from dsv2.graph.keys import check_keys
from dsv2.graph.observers import with_superseded
from dsv2.graph.per_key import check_per_key
from dsv2.graph.plan import (
    DEAD_LETTERS,
    AtSource,
    Edge,
    Exchange,
    KeySelector,
    Operator,
    OperatorKind,
    Plan,
    RegisteredType,
    one_partition,
)
from dsv2.graph.side_outputs import declared_outputs
from dsv2.graph.sink_checks import with_sink_checks
from dsv2.graph.uids import Uid, uids_of
from dsv2.graph.watermark_handlers import check_handlers
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.error_policy import ErrorPolicy
from dsv2.model.output_tag import OutputTag
from dsv2.sinks import Sink
from dsv2.sources import BaseSource, CollectionSource, DataFrameSource, WatermarkStrategy
from dsv2.spi import BatchFunction, Position
from dsv2.watermark import WatermarkDeclaration

MAX_PARALLELISM = 32768  # as in Flink, where a key group has 15 bits


@dataclass(eq=False)
class Node:
    """An operator that the user can still configure."""

    id: int
    kind: OperatorKind
    body: ProcessFunction | BaseSource[Any] | Sink[Any]
    name: str
    location: str
    inputs: tuple[InputRef, ...] = ()
    output_keys: tuple[KeySelector | None, ...] = (None,)
    non_parallel: bool = False
    output_key_version: int | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    watermarks: WatermarkStrategy[Any] | None = None
    broadcast_wait: WaitForBroadcast | None = None
    side_outputs: list[OutputTag[Any]] = field(default_factory=list)
    error_policy: ErrorPolicy | None = None
    groups: frozenset[str] = frozenset()
    looked_at: bool = False
    """True if ``take`` or ``show`` has run the operator."""

    def output_name(self, output: int) -> int | str:
        """The output with this number in automatic uids. See ``Operator.output_name``."""
        main = len(self.output_keys)
        return output if output < main else self.side_outputs[output - main].name


@dataclass(frozen=True)
class InputRef:
    """One output of a node as the input of another, with the partitioning between them.

    Attributes:
        node: The upstream node.
        output: The index of its output.
        exchange: None: forward if both nodes have the same parallelism, otherwise rebalance.
        key_selector: With ``exchange`` None: the stream is already partitioned by this key.
        key_version: The version that the user gave for the selector, or None.
    """

    node: Node
    output: int = 0
    exchange: Exchange | None = None
    key_selector: KeySelector | None = None
    key_version: int | None = None


@dataclass
class PlanBuilder:
    """The nodes of one environment, in the order of creation, so inputs come first."""

    plan_of: Callable[[PlanBuilder, str], Plan]
    """Builds the plan of a builder, under a job name, with the settings of the environment."""
    sample: Callable[[Plan, int, float | None], list[Any]]
    """Runs a plan until its only sink has received a number of records, or for some seconds, and returns them."""
    nodes: list[Node] = field(default_factory=list)
    executed_before: str | None = None
    """The user's file and line of an earlier ``execute`` in the same environment, or None."""
    executed_at: str | None = None
    """The user's file and line where this pipeline was executed, or None. An executed pipeline is closed."""
    is_part: bool = False
    """True if these are only the operators upstream of a stream, so that others may be missing."""
    ignores_addresses: bool = False
    """True if watermarks are delivered to all operators that they reach. For harnesses, which have one function."""

    def add(
        self,
        kind: OperatorKind,
        body: ProcessFunction | BaseSource[Any] | Sink[Any],
        name: str,
        inputs: tuple[InputRef, ...] = (),
        output_keys: tuple[KeySelector | None, ...] = (None,),
        non_parallel: bool = False,
        output_key_version: int | None = None,
    ) -> Node:
        """Add an operator. Called by the stream classes. Raises ``PlanError`` if the pipeline has been executed."""
        self.require_open()
        node = Node(len(self.nodes), kind, body, name, caller_location(), inputs, output_keys, non_parallel)
        node.output_key_version = output_key_version
        node.side_outputs = declared_outputs(body, f"{name} at {node.location}")
        self.nodes.append(node)
        return node

    def require_open(self) -> None:
        """Raise ``PlanError`` if the pipeline has been executed."""
        if self.executed_at is not None:
            raise PlanError(
                f"The stream used at {caller_location()} is part of the pipeline that was executed at "
                f"{self.executed_at}. Build a new pipeline, starting from the environment."
            )

    def build(
        self,
        job_name: str,
        mode: RuntimeExecutionMode,
        default_parallelism: int,
        registered_types: Iterable[RegisteredType] = (),
        callback_timeout_ms: int | None = None,
        error_policy: ErrorPolicy | None = None,
    ) -> Plan:
        """Build the checked plan. Raises a ``PlanError`` that names the operator and the user's file and line."""
        if not self.nodes and self.executed_before is not None:
            raise PlanError(
                f"Nothing to run: the pipeline was executed at {self.executed_before}, after which the environment is "
                f"empty. Build the pipeline again to run it again."
            )
        nodes = without_samples(self.nodes)
        if not any(node.kind is not OperatorKind.SOURCE for node in nodes):
            looked_at = " that take and show have not only looked at" if nodes != self.nodes else ""
            raise PlanError(
                f"Nothing to run: the pipeline has no operator after its sources{looked_at}. Add process or to_sink."
            )
        mode = _resolved(mode, nodes)
        nodes = with_sink_checks(nodes)
        uids = uids_of(nodes)
        operators = tuple(_operator(node, uids[node.id], default_parallelism, error_policy) for node in nodes)
        for operator in operators:
            if isinstance(operator.body, ProcessFunction):
                check_states(operator)
                check_callbacks(operator)
                check_keys(operator)
        _check_sinks_together([node for node in nodes if node.kind is OperatorKind.SINK])
        edges = tuple(
            _edge(operators[ref.node.id], ref, operators[node.id], index)
            for node in nodes
            for index, ref in enumerate(node.inputs)
        )
        declarations = _declarations(operators)
        for operator in operators:
            check_handlers(operator, declarations)
        addressed = {} if self.ignores_addresses else declarations
        operators, edges = with_addresses(operators, edges, addressed, is_part=self.is_part)
        plan = Plan(
            job_name,
            mode,
            operators,
            with_superseded(operators, edges, declarations),
            declarations,
            tuple(registered_types),
            callback_timeout_ms,
        )
        check_unions(plan)
        check_waits(plan)
        if plan.per_key:
            check_per_key(Flow(plan))
        check_record_classes(plan)
        return plan


def _resolved(mode: RuntimeExecutionMode, nodes: Sequence[Node]) -> RuntimeExecutionMode:
    unbounded = [n for n in nodes if isinstance(n.body, BaseSource) and not n.body.bounded]
    if mode is RuntimeExecutionMode.AUTOMATIC:
        return RuntimeExecutionMode.STREAMING if unbounded else RuntimeExecutionMode.BATCH
    if mode is RuntimeExecutionMode.BATCH and unbounded:
        first = unbounded[0]
        raise PlanError(
            f"BATCH requires bounded sources, but {first.name} at {first.location} is unbounded. "
            f"Give it an end, or run in STREAMING."
        )
    return mode


def _operator(node: Node, uid: Uid, default_parallelism: int, default_policy: ErrorPolicy | None) -> Operator:
    where = f"{node.name} at {node.location}"
    parallelism = 1 if node.non_parallel else node.parallelism or _inherited_parallelism(node) or default_parallelism
    max_parallelism = 1 if node.non_parallel else node.max_parallelism or _default_max_parallelism(parallelism)
    if parallelism > max_parallelism:
        raise ConfigurationError(f"{where}: parallelism {parallelism} exceeds max parallelism {max_parallelism}.")
    input_keys = tuple(ref.key_selector for ref in node.inputs)
    try:
        if isinstance(node.body, ProcessFunction):
            node.body.dsv2_check_position(Position(any(input_keys), not node.non_parallel, any(node.output_keys)))
        elif isinstance(node.body, Sink):
            node.body.check()
    except PlanError as error:
        raise type(error)(f"{where}: {error}") from error
    if isinstance(node.body, ProcessFunction) and node.body.dsv2_partition_by_constant and not any(input_keys):
        input_keys = (one_partition,) * len(input_keys)
    policy = policy_of(node.body, node.error_policy, default_policy, where)
    check_dead_letters(policy, node.side_outputs, where)
    return Operator(
        id=node.id,
        uid=uid.text,
        name=node.name,
        kind=node.kind,
        body=node.body,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        location=node.location,
        input_keys=input_keys,
        output_keys=node.output_keys,
        side_outputs=tuple(node.side_outputs),
        key_versions=tuple(ref.key_version for ref in node.inputs),
        output_key_version=node.output_key_version,
        at_source=_at_source(node.body, input_keys, policy),
        error_policy=policy,
        watermarks=node.watermarks,
        broadcast_wait=node.broadcast_wait,
        automatic_uid=uid.automatic,
        twin=uid.twin,
        groups=node.groups,
    )


def _check_sinks_together(nodes: list[Node]) -> None:
    for first, second in combinations(nodes, 2):
        assert isinstance(first.body, Sink)
        assert isinstance(second.body, Sink)
        if (conflict := first.body.conflict_with(second.body)) is not None:
            raise ConfigurationError(
                f"The sinks {first.name} at {first.location} and {second.name} at {second.location} cannot be written "
                f"by one job: {conflict}. Use separate sinks."
            )


def _at_source(
    body: ProcessFunction | BaseSource[Any] | Sink[Any],
    input_keys: tuple[KeySelector | None, ...],
    policy: ErrorPolicy | None,
) -> AtSource:
    if policy is not None and not isinstance(body, BaseSource):
        return AtSource.NOTHING  # attempts require a subtask with state
    if isinstance(body, CollectionSource) or any(input_keys):
        return AtSource.NOTHING  # the elements of a collection are on the driver
    if isinstance(body, DataFrameSource) or (isinstance(body, BatchFunction) and body.keeps_nothing):
        return AtSource.RECORDS  # several tasks read the rows of one subtask
    if isinstance(body, BaseSource) or (isinstance(body, BatchFunction) and body.keeps_within_portions):
        return AtSource.MICRO_BATCHES
    return AtSource.NOTHING


def _inherited_parallelism(node: Node) -> int | None:
    # A sink has the parallelism of its input, so that records are not exchanged.
    inherits = isinstance(node.body, ProcessFunction) and node.body.dsv2_inherits_parallelism
    if node.kind is not OperatorKind.SINK and not inherits:
        return None
    source = node.inputs[0].node
    return 1 if source.non_parallel else source.parallelism


def _default_max_parallelism(parallelism: int) -> int:
    # As Flink: 1.5 times the parallelism, rounded up to a power of two, from 128 to 32768.
    return min(max(128, 1 << (parallelism + parallelism // 2 - 1).bit_length()), MAX_PARALLELISM)


def _edge(source: Operator, ref: InputRef, target: Operator, index: int) -> Edge:
    keyed = ref.key_selector is not None
    same = source.parallelism == target.parallelism
    if keyed:
        same = same and source.max_parallelism == target.max_parallelism
    by_parallelism = ref.exchange is None and not same
    redistributing = Exchange.HASH if keyed else Exchange.REBALANCE
    exchange = ref.exchange or (Exchange.FORWARD if same else redistributing)
    return Edge(source.id, ref.output, target.id, index, exchange, ref.key_selector, by_parallelism)


def _declarations(operators: Iterable[Operator]) -> dict[str, WatermarkDeclaration]:
    declared: dict[str, tuple[WatermarkDeclaration, Operator]] = {}
    for operator in operators:
        declarations: object = operator.declared_watermarks
        if not isinstance(declarations, Collection):
            raise WatermarkDeclarationError(
                f"{operator} at {operator.location}: declare_watermarks returned {declarations!r}, "
                f"not a collection of declarations. Return a list or a tuple."
            )
        of_strategy = operator.watermarks.declarations if operator.watermarks is not None else ()
        for declaration in (*declarations, *of_strategy):
            if not isinstance(declaration, WatermarkDeclaration):
                raise WatermarkDeclarationError(
                    f"{operator} at {operator.location}: declare_watermarks returned {declaration!r}, "
                    f"which is not a watermark declaration. Create one with new_builder(...)....build()."
                )
            first, owner = declared.setdefault(declaration.identifier, (declaration, operator))
            if first != declaration:
                raise WatermarkDeclarationError(
                    f"Watermark {declaration.identifier!r} has two different declarations:\n"
                    f"  {owner} at {owner.location}: {first}\n"
                    f"  {operator} at {operator.location}: {declaration}\n"
                    f"An identifier is unique in a job: use the same declaration, or rename one of them."
                )
    return {identifier: declaration for identifier, (declaration, _) in declared.items()}


_INTERNAL_PACKAGES = ("dsv2", "runtime_spark", "typing")  # typing is the caller of Harness[int, int](...)


def caller_location() -> str:
    """File and line of the nearest caller outside this package, for build-time errors."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        frame = frame.f_back
    return f"{shown_file(frame.f_code.co_filename)}:{frame.f_lineno}"


def kind_of(value: object) -> str:
    """The class of ``value`` for an error message, or a note that ``value`` is a class and not an instance."""
    return f"the class {value.__name__} itself" if isinstance(value, type) else type(value).__name__


def without_samples(nodes: Sequence[Node]) -> list[Node]:
    """Return the operators that a job consists of: without those that were looked at, and that lead to nothing else."""
    kept: list[Node] = []
    read: dict[int, set[int]] = defaultdict(set)  # the outputs of each operator that others read
    for node in reversed(nodes):
        if node.looked_at and not read[node.id]:
            continue
        letters = len(node.output_keys) + len(node.side_outputs) - 1
        if node.looked_at and node.side_outputs[-1:] == [DEAD_LETTERS] and letters not in read[node.id]:
            node = replace(node, side_outputs=node.side_outputs[:-1])
        for ref in node.inputs:
            read[ref.node.id].add(ref.output)
        kept.append(node)
    return kept[::-1]
