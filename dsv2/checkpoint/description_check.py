"""Checks the description of a program that was read from a file, which anybody may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from dsv2.checkpoint.column_types import is_column_type
from dsv2.checkpoint.type_shapes import Shape, is_shape
from dsv2.graph import Exchange, OperatorKind

_Positive: TypeAlias = Annotated[int, Meta(ge=1)]


class _Field(Struct):
    type: list[Any]
    has_default: bool


class _Class(Struct):
    fields: dict[str, _Field] = {}
    members: dict[str, int | None] = {}


class _State(Struct):
    kind: str
    types: list[list[Any]]
    version: int
    has_converter: bool
    mode: str
    time_to_live: bool | str
    classes: dict[str, _Class]
    column: Any


class _Key(Struct):
    digest: str | None
    version: int | None


class _Input(Struct):
    from_: str = msgspec.field(name="from")
    from_stateless: bool
    output: str | int
    exchange: Exchange
    key: _Key | None


class _Aggregates(Struct):
    fields: dict[str, str]
    types: list[list[Any]]
    classes: dict[str, _Class]


class _Operator(Struct):
    kind: OperatorKind
    function: str
    defined_at: str
    automatic_uid: bool
    parallelism: _Positive
    max_parallelism: _Positive
    stateless: bool
    keeps_state: bool
    inputs: list[_Input]
    output_keys: list[_Key | None]
    states: dict[str, _State]
    split_sources: list[Annotated[list[str], Meta(min_length=1)]]
    needs_clock: bool
    state_layout: str
    contents: str
    part_of: str = ""
    aggregates: _Aggregates | None = None


class _Watermark(Struct):
    type: str
    function: str
    wait_for_all_channels: bool
    aligned: bool
    across_inputs: bool
    strategy: str
    across_inputs_function: str = ""
    delivery: str = ""
    expires: bool = False
    barrier: bool = False
    keys: list[list[Any]] = []
    values: list[list[Any]] = []
    classes: dict[str, _Class] = {}


class _Program(Struct):
    format_version: int
    python: Any
    job_name: str
    operators: dict[str, Any]
    watermarks: dict[str, Any]
    former_names: dict[str, str]


def check_description(program: object) -> None:
    """Check the description of a program.

    Raises:
        ValueError: A part is missing, or has another type than it must have; names the operator or watermark.
    """
    described = _converted("the program", program, _Program)
    operators = {
        uid: _converted(f"operator {uid!r}", operator, _Operator) for uid, operator in described.operators.items()
    }
    for uid, operator in operators.items():
        for name, state in operator.states.items():
            _check_shapes(f"state {name!r} of operator {uid!r}", state.types, state.classes)
            if not state.types or not (state.column is None or is_column_type(state.column)):
                raise ValueError(f"state {name!r} of operator {uid!r}: its types or its column are not valid")
        if operator.aggregates is not None:
            _check_shapes(f"operator {uid!r}", operator.aggregates.types, operator.aggregates.classes)
    for identifier, one in described.watermarks.items():
        watermark = _converted(f"watermark {identifier!r}", one, _Watermark)
        _check_shapes(f"watermark {identifier!r}", [*watermark.keys, *watermark.values], watermark.classes)


def _check_shapes(owner: str, types: list[Shape], classes: Mapping[str, _Class]) -> None:
    fields = [field.type for kind in classes.values() for field in kind.fields.values()]
    for shape in [*types, *fields]:
        if not is_shape(shape):
            raise ValueError(f"{owner}: a type cannot be {str(shape)[:200]!r}")


def _converted(owner: str, value: object, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{owner}: {error}") from error
