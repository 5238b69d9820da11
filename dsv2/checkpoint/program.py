"""The description of a program: what must not change unnoticed between two starts.

Stored state is only bytes, so a job would continue with a program that interprets them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from dsv2.checkpoint.class_changes import Classes
from dsv2.checkpoint.column_types import ColumnType
from dsv2.checkpoint.type_shapes import TypeShape
from dsv2.graph import Exchange, OperatorKind

FURTHER = " (further)"
"""Ends the names of states that a wrapping function keeps for the function that it wraps."""

_Positive: TypeAlias = Annotated[int, Meta(ge=1)]


class KeyDescription(Struct, frozen=True):
    """A key selector: the digest of its code, and the version that the user has given it."""

    digest: str
    version: int | None


class InputDescription(Struct, frozen=True):
    """An input of an operator.

    Attributes:
        sender: The uid of the operator that it receives from.
        sender_is_stateless: Whether the subtasks of that operator have nothing in the checkpoint.
        output: The output of that operator, as ``Operator.output_name``.
        exchange: How records are distributed.
        key: The key selector; None: it has none.
    """

    sender: str
    sender_is_stateless: bool
    output: int | str
    exchange: Exchange
    key: KeyDescription | None


class StateDescription(Struct, frozen=True):
    """A state.

    Attributes:
        kind: The kind, such as ``ValueState``.
        types: The types of its elements, or of keys and values.
        version: The version of its values.
        has_converter: Whether it converts values of earlier versions.
        mode: The name of its ``RedistributionMode``.
        time_to_live: Whether values have a time to live. Those in event time expire by another clock.
        classes: The classes in its types.
        column: The column type of a stored value, for the tables of savepoints.
    """

    kind: str
    types: Annotated[tuple[TypeShape, ...], Meta(min_length=1)]
    version: int
    has_converter: bool
    mode: str
    time_to_live: bool | Literal["in event time"]
    classes: Classes
    column: ColumnType | None

    @property
    def shape(self) -> TypeShape:
        """The type of a stored value."""
        if self.kind == "ListState":
            return TypeShape("builtins.list", self.types)
        return TypeShape("builtins.dict", self.types) if len(self.types) == 2 else self.types[0]

    @property
    def holds_several_values(self) -> bool:
        """True if it holds a list or a map, which is removed when it is empty."""
        return self.kind in ("ListState", "MapState", "BroadcastState")


class AggregatesDescription(Struct, frozen=True):
    """The stored form of declared aggregates: the aggregate of each field, and the types of the accumulators."""

    fields: Mapping[str, str]
    types: tuple[TypeShape, ...]
    classes: Classes


class OperatorDescription(Struct, frozen=True):
    """An operator.

    Attributes:
        kind: Its kind.
        function: The class of its function or source.
        defined_at: The line of the program.
        automatic_uid: Whether the user has not named it.
        part_of: The step of the user that it is a part of. Empty: it is one itself.
        parallelism: The number of its subtasks.
        max_parallelism: The number of its key groups.
        stateless: Whether its subtasks have nothing in the checkpoint, so that the parallelism may change.
        keeps_state: Whether its function may keep state.
        inputs: Its inputs, in order.
        output_keys: The keys of its outputs.
        states: Its states, by name.
        split_sources: The classes that determine what a split means: for a source, and for each source in it, itself
            and its bases.
        needs_clock: Whether it uses timers in processing time.
        state_layout: The layout of its state, if it is special.
        contents: What it keeps in windows or joins (``WrappingFunction.contents``).
        aggregates: Its aggregates. None: it declares none.
    """

    kind: OperatorKind
    function: str
    defined_at: str
    automatic_uid: bool
    part_of: str
    parallelism: _Positive
    max_parallelism: _Positive
    stateless: bool
    keeps_state: bool
    inputs: tuple[InputDescription, ...]
    output_keys: tuple[KeyDescription | None, ...]
    states: Mapping[str, StateDescription]
    split_sources: tuple[Annotated[tuple[str, ...], Meta(min_length=1)], ...]
    needs_clock: bool
    state_layout: str
    contents: str
    aggregates: AggregatesDescription | None

    @property
    def is_keyed(self) -> bool:
        """True if it has keys."""
        return any(one.key is not None for one in self.inputs)


class WatermarkDescription(Struct, frozen=True):
    """A declared watermark. Each part is as differences show it.

    Attributes:
        type: The type of its values, without their class, which may be renamed.
        function: The function that combines the channels.
        wait_for_all_channels: Whether it waits for all of them.
        aligned: Whether the channels are aligned.
        across_inputs: Whether it is combined across inputs.
        across_inputs_function: The function that combines inputs.
        delivery: The name of its ``WatermarkDelivery``.
        strategy: The name of its default handling strategy.
        expires: Whether its keys expire.
        barrier: Whether it is a barrier.
        keys: The type of its keys, if it has any.
        values: The types of its values, if they are of a class.
        classes: The classes of its values.
    """

    type: str
    function: str
    wait_for_all_channels: bool
    aligned: bool
    across_inputs: bool
    across_inputs_function: str
    delivery: str
    strategy: str
    expires: bool
    barrier: bool
    keys: tuple[TypeShape, ...]
    values: tuple[TypeShape, ...]
    classes: Classes


class ProgramDescription(Struct, frozen=True):
    """A program.

    Attributes:
        format_version: The version of the format of its state.
        python: The version of Python. Digests of other versions cannot be compared.
        job_name: The name of the job.
        operators: The operators and sources, by uid, in the order of the plan.
        watermarks: The declared watermarks, by identifier.
        former_names: The names of classes now, by each name that they had.
    """

    format_version: int
    python: str
    job_name: str
    operators: Mapping[str, OperatorDescription]
    watermarks: Mapping[str, WatermarkDescription]
    former_names: Mapping[str, str]

    @property
    def essence(self) -> ProgramDescription:
        """The description without the parts that may change freely."""
        operators = {uid: replace(one, function="", defined_at="") for uid, one in self.operators.items()}
        return replace(self, operators=operators, job_name="")

    def states_of(self, uid: str) -> Mapping[str, StateDescription]:
        """Return the states of an operator by name; none if there is no such operator."""
        return self.operators[uid].states if uid in self.operators else {}
