"""The model of a plan for people: what its operators do, where they run, and what a reader should know.

``view_of`` builds it once from a plan. Renderers turn it into text, diagrams and JSON; they compute nothing themselves.
Operators are referred to by ``id``, because a pipeline that cannot be built may use a uid twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dsv2.graph import Exchange, OperatorKind
from dsv2.plan_view.finding import Finding
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.state import RedistributionMode, TtlTimeCharacteristic

FORMAT_VERSION: Final = 1
"""The version of the JSON format. It increases when a field is removed or changes its meaning."""


class Place(Enum):
    """The place in which an operator runs.

    ``SOURCE_TASK``: in the tasks that read the source. ``SUBTASK``: in subtasks of its level; a source is then read by
    the subtasks of the function after it. ``DRIVER``: on the driver. ``SINK_TASK``: in the tasks that write.
    """

    SOURCE_TASK = "source task"
    SUBTASK = "subtask"
    DRIVER = "driver"
    SINK_TASK = "sink task"


class Processing(Enum):
    """The way a function is called with records.

    ``RECORDS``: one by one. ``BATCHES``: a batch at once, by a built-in function. ``STAMPED_BATCHES``: likewise, if
    the records have timestamps. ``TABLES``: as Arrow tables. ``IN_FLIGHT``: for several records at the same time, by an
    async function.
    """

    RECORDS = "records"
    BATCHES = "batches"
    STAMPED_BATCHES = "batches with timestamps"
    TABLES = "tables"
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class Code:
    """A function of the user.

    Attributes:
        text: Its name, or the source of a lambda.
        location: Its file and line, or None if it has none.
        version: The version that the user gave for a key selector, or None.
    """

    text: str
    location: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class StateView:
    """A declared state.

    Attributes:
        name: The name.
        kind: Such as ``ValueState``.
        types: The types of the values.
        mode: The redistribution mode. NONE: the state belongs to a key.
        ttl_ms: The time to live in ms. None: without a limit.
        ttl_time: The time by which values expire, or None.
    """

    name: str
    kind: str
    types: tuple[str, ...]
    mode: RedistributionMode
    ttl_ms: int | None = None
    ttl_time: TtlTimeCharacteristic | None = None


@dataclass(frozen=True, slots=True)
class OperatorView:
    """An operator.

    Attributes:
        id: The index in ``PlanView.operators``.
        uid: The name in checkpoints. None: unknown, because the plan could not be built.
        automatic_uid: Whether the user gave no uid.
        name: The name in progress reports and errors.
        kind: Source, sink, or the inputs and outputs of the function.
        function: The class or the callable.
        location: The user's file and line that created the operator.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups, or None if unknown.
        chain: The id of the head of its chain, which is the operator itself if it is not chained.
        level: 0: in the tasks that read the source. From 1: the level. None: a sink, or unknown.
        place: Where it runs, or None if unknown.
        bounded: For a source, whether it ends.
        read_by: For a source that the subtasks of a chain read themselves, the id of the head of that chain.
        processing: How the function is called; ``TABLES`` for a source or sink that moves columns. None: one that moves
            rows, or it is not known.
        states: The declared states.
        layout: What a window or join keeps, or "".
        side_outputs: The names of the side outputs.
        declares: The identifiers of the watermarks that it declares.
        handlers: For each input that has one, the callback for watermarks, if the function overrides it.
        watermark_handlers: Its handlers of single watermarks.
        event_time: Whether it acts as event time advances.
        error_policy: What happens when a callback raises. "": the job fails.
        broadcast_wait: What ends the wait for the broadcast input. "": it does not wait.
        broadcast_wait_until: The identifier of the watermark that ends this wait. None: the end of the input, or it
            does not wait.
        idle_after_ms: For a generator of event time, or a source with one, after how many ms without records a subtask
            or split is idle. 0: never. None: it does not generate event time from records.
        alignment_group: For a source, the group with which its event time is aligned, or "".
        groups: The groups to which watermarks can be addressed.
        addressed: The identifiers of the watermarks that are addressed to it.
    """

    id: int
    uid: str | None
    automatic_uid: bool
    name: str
    kind: OperatorKind
    function: Code
    location: str
    parallelism: int
    max_parallelism: int | None = None
    chain: int = -1
    level: int | None = None
    place: Place | None = None
    bounded: bool | None = None
    read_by: int | None = None
    processing: Processing | None = None
    states: tuple[StateView, ...] = ()
    layout: str = ""
    side_outputs: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    watermark_handlers: tuple[HandlerView, ...] = ()
    event_time: bool = False
    error_policy: str = ""
    broadcast_wait: str = ""
    broadcast_wait_until: str | None = None
    idle_after_ms: int | None = None
    alignment_group: str = ""
    groups: tuple[str, ...] = ()
    addressed: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The uid that the user gave, otherwise the name."""
        return self.name if self.uid is None or self.automatic_uid else self.uid


@dataclass(frozen=True, slots=True)
class EdgeView:
    """An edge from an output of ``source`` to the input ``input`` of ``target``.

    Attributes:
        source: The id of the upstream operator.
        output: The name of a side output, otherwise the number of the output, from 0.
        target: The id of the downstream operator.
        input: The number of the input, from 0.
        exchange: How records are distributed. None: unknown.
        chained: Whether both ends run in one subtask or source task, without an exchange.
        read: Whether the target's subtasks read the source themselves, without an exchange.
        channels: The number of channels into each subtask, or None if unknown.
        key: The key selector.
        without: The identifiers of the watermarks that it does not carry, because they are addressed to operators
            elsewhere. Not for sinks, which ignore watermarks.
        carries: The identifiers of the watermarks that may be sent along it. Not for sinks.
    """

    source: int
    output: int | str
    target: int
    input: int
    exchange: Exchange | None
    chained: bool = False
    read: bool = False
    channels: int | None = None
    key: Code | None = None
    without: tuple[str, ...] = ()
    carries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerView:
    """A handler of one watermark.

    Attributes:
        input: The index of the input on which the watermark arrives.
        watermark: The identifier.
        method: The name of the method.
    """

    input: int
    watermark: str
    method: str


@dataclass(frozen=True, slots=True)
class WatermarkView:
    """A declared watermark, and where it can go.

    Functions emit watermarks in code, so the plan only shows who declares one and where it would be received.

    Attributes:
        identifier: The identifier.
        type: ``long``, ``bool``, ``float``, ``str``, ``vector``, ``set of str`` and so on, or the name of a data class.
        combination: How values are combined, such as ``min``, ``sum``, ``quantile(0.5)`` or ``combine(function)``.
        waits_for_all: Whether nothing is delivered until every active channel has sent a value.
        aligned: Whether it blocks a channel until all channels have sent theirs.
        across_inputs: Whether a function with two inputs forwards one value combined over both.
        forwarded: Whether functions forward it, unless they return POLL.
        declared_by: The ids of the operators that declare it.
        received_by: The ids of the functions that it can reach.
        handled_by: The ids of those of them that act on watermarks.
        across_inputs_combination: How the values of the inputs are combined. "": as those of the channels.
        delivery: When a combined value is delivered to functions, such as ``on change``.
        addressed_to: The ids of the operators that it is addressed to. Empty: it is not addressed.
        key_type: For a per-key watermark, the type of the keys, otherwise "".
        expires_after_ms: After how many ms of processing time the value of a channel no longer counts. None: never.
        barrier: For a barrier, how long it waits: ``BarrierWait`` in words. None: it is not a barrier.
    """

    identifier: str
    type: str
    combination: str
    waits_for_all: bool
    aligned: bool
    across_inputs: bool
    forwarded: bool
    declared_by: tuple[int, ...]
    received_by: tuple[int, ...]
    handled_by: tuple[int, ...]
    across_inputs_combination: str = ""
    delivery: str = "on change"
    addressed_to: tuple[int, ...] = ()
    key_type: str = ""
    expires_after_ms: int | None = None
    barrier: str | None = None


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan for people.

    Attributes:
        format_version: The version of the JSON format.
        job_name: The name of the job.
        mode: ``streaming`` or ``batch``. If the plan could not be built, the mode that the user has set.
        levels: The number of levels.
        operators: The operators, upstream first.
        edges: The edges.
        watermarks: The declared watermarks.
        findings: What a reader should know, warnings first.
        runtime: How the runtime would run it, or None if there is none.
        error: Why the pipeline cannot be built, or None. Other facts are then incomplete.
    """

    format_version: int
    job_name: str
    mode: str
    levels: int
    operators: tuple[OperatorView, ...]
    edges: tuple[EdgeView, ...]
    watermarks: tuple[WatermarkView, ...] = ()
    findings: tuple[Finding, ...] = ()
    runtime: RuntimeView | None = None
    error: str | None = None

    @property
    def chains(self) -> dict[int, tuple[OperatorView, ...]]:
        """The operators of each chain, by the id of its head, upstream first."""
        members: dict[int, list[OperatorView]] = {}
        for operator in self.operators:
            members.setdefault(operator.chain, []).append(operator)
        return {head: tuple(chain) for head, chain in members.items()}

    def edges_into(self, operator: OperatorView) -> tuple[EdgeView, ...]:
        """The incoming edges of ``operator``, sorted by input."""
        return tuple(sorted((edge for edge in self.edges if edge.target == operator.id), key=lambda edge: edge.input))
