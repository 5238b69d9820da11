"""The record type of a stream, if the program declares it."""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from dsv2.functions import CallableFunction, FlatMapFunction, MapFunction, ProcessFunction
from dsv2.functions.one_input import PassingFunction
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.sources import BaseSource, CollectionSource
from dsv2.spi import ColumnarFunction, WrappingFunction

if TYPE_CHECKING:
    from dsv2.graph.builder import InputRef, Node


UNDECLARED: Any = object()
_PASSING = (OperatorKind.ONE_INPUT, OperatorKind.UNION)
_ITERABLES = (Iterable, Iterator, Generator, list, tuple, set)


def declared_type(plan: Plan, operator: Operator, output: int) -> Any:
    """The record type of an output of ``operator``, as in an annotation, or ``UNDECLARED``."""

    def upstream() -> Any:
        edge = plan.edges_into[operator.id][0]
        return declared_type(plan, plan.operators[edge.source], edge.output)

    return _declared(operator, output, upstream)


def declared_type_of(ref: InputRef) -> Any:
    """The same for an output of a node, while the pipeline is built."""
    node = ref.node
    return _declared(node, ref.output, lambda: declared_type_of(node.inputs[0]))


def returned_type(function: object) -> Any:
    """The type of what ``function`` returns, or ``UNDECLARED``."""
    return function if isinstance(function, type) else _annotations(function).get("return", UNDECLARED)


def _declared(operator: Operator | Node, output: int, upstream: Callable[[], Any]) -> Any:
    """``upstream`` returns the record type of the first input."""
    main = len(operator.output_keys)
    if output >= main:
        tag = operator.side_outputs[output - main]
        return UNDECLARED if tag.record_type is None else tag.record_type
    match operator.body:
        case CollectionSource(items=items):
            return type(items[0]) if items else UNDECLARED
        case BaseSource(dsv2_record_type=record_type):
            if record_type is None:
                record_type = _arguments(type(operator.body), BaseSource)[0]
            return UNDECLARED if isinstance(record_type, TypeVar) else record_type
        case MapFunction(function=function):
            return returned_type(function)
        case FlatMapFunction(function=function):
            returned = _annotations(function).get("return", UNDECLARED)
            return get_args(returned)[0] if get_origin(returned) in _ITERABLES and get_args(returned) else UNDECLARED
        case CallableFunction(function=function):
            return _collected(function)
        case ColumnarFunction():
            return operator.body.record_types[-1]
    if not isinstance(operator.body, ProcessFunction):
        return UNDECLARED
    called = operator.body
    kind = type(called.wrapped if isinstance(called, WrappingFunction) else called)
    if issubclass(kind, PassingFunction):
        return upstream()
    given = _arguments_of_ours(kind)
    if len(given) <= main:
        return UNDECLARED
    declared = given[output - main]
    if not isinstance(declared, TypeVar):
        return declared
    if operator.kind in _PASSING and declared is given[0]:  # it emits what it receives
        return upstream()
    return UNDECLARED


def _arguments_of_ours(kind: type) -> tuple[Any, ...]:
    """The type arguments that ``kind`` passes to its function base class: those of the inputs, then of the outputs."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dsv2"]
    generic = [base for base in bases if getattr(base, "__parameters__", ())]
    return _arguments(kind, generic[-1]) if generic else ()


def _arguments(kind: type, base: type) -> tuple[Any, ...]:
    if kind is base:
        return tuple(kind.__parameters__)  # type: ignore[attr-defined]
    bases = [
        (get_origin(given) or given, get_args(given)) for given in vars(kind).get("__orig_bases__", kind.__bases__)
    ]
    origin, args = next((one, args) for one, args in bases if isinstance(one, type) and issubclass(one, base))
    values = dict(zip(getattr(origin, "__parameters__", ()), args, strict=False))
    return tuple(values.get(one, one) if isinstance(one, TypeVar) else one for one in _arguments(origin, base))


def _collected(function: object) -> Any:
    """``X`` for a callable ``(record, output: Collector[X], ctx)``."""
    annotations = [hint for name, hint in _annotations(function).items() if name != "return"]
    given = get_args(annotations[1]) if len(annotations) == 3 else ()
    return given[0] if given else UNDECLARED


def _annotations(function: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that exists only for type checkers, or an object without annotations
        return {}
