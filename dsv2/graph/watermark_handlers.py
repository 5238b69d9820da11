"""The handlers that a function has for single watermarks (``on``), and the checks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dsv2.base.callables import deferred_kind, takes
from dsv2.errors import WatermarkDeclarationError
from dsv2.functions import ProcessFunction
from dsv2.functions.handlers import FunctionInput, WatermarkHandler, watermark_handlers
from dsv2.graph.per_key import receives_keys
from dsv2.graph.plan import Operator, OperatorKind
from dsv2.spi import WrappingFunction
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import RESERVED

_INPUTS: Final = {
    OperatorKind.TWO_INPUT: (FunctionInput.FIRST, FunctionInput.SECOND),
    OperatorKind.TWO_INPUT_BROADCAST: (FunctionInput.NON_BROADCAST, FunctionInput.BROADCAST),
}


@dataclass(frozen=True, slots=True)
class InputHandler:
    """A handler of one watermark that arrives on one input.

    Attributes:
        input: The index of the input.
        identifier: The watermark.
        method: The name of the method of ``owner_of_handlers``.
    """

    input: int
    identifier: str
    method: str


def owner_of_handlers(function: ProcessFunction) -> object:
    """The object whose methods are the handlers: the function of the user."""
    return function.wrapped if isinstance(function, WrappingFunction) else function


def handlers_of(function: object, kind: OperatorKind) -> list[InputHandler]:
    """Return the handlers of a function that ``check_handlers`` has accepted, in an operator of ``kind``."""
    if not isinstance(function, ProcessFunction):
        return []
    inputs = _INPUTS.get(kind, (None,))
    found = watermark_handlers(type(owner_of_handlers(function)))
    return [InputHandler(inputs.index(one.input), one.declaration.identifier, one.method) for one in found]


def check_handlers(operator: Operator, declarations: Mapping[str, WatermarkDeclaration]) -> None:
    """Check the handlers of ``operator``.

    Raises:
        WatermarkDeclarationError: The watermark of a handler is not declared in the job or is declared differently,
            has two handlers, or the handler has the wrong input or parameters.
    """
    if not isinstance(operator.body, ProcessFunction):
        return
    owner = owner_of_handlers(operator.body)
    taken: dict[tuple[FunctionInput | None, str], str] = {}
    for handler in watermark_handlers(type(owner)):
        problem = _problem(operator, owner, handler, declarations)
        first = taken.setdefault((handler.input, handler.declaration.identifier), handler.method)
        if problem is None and first != handler.method:
            problem = f"{first} handles this watermark as well. Keep one of the two"
        if problem is not None:
            raise WatermarkDeclarationError(
                f"{operator} at {operator.location}: {type(owner).__qualname__}.{handler.method} handles the watermark "
                f"{handler.declaration.identifier!r}, but {problem}."
            )


def _problem(
    operator: Operator, owner: object, handler: WatermarkHandler, declarations: Mapping[str, WatermarkDeclaration]
) -> str | None:
    identifier = handler.declaration.identifier
    declared = declarations.get(identifier)
    if declared is None:
        return (
            "no function or source of the job declares it. Return it from declare_watermarks() of the function that "
            "emits it"
        )
    if declared != handler.declaration:
        return f"the job declares it differently: {declared}. Use the same declaration"
    if declared.scope.key_type is not None and not receives_keys(operator):
        return "it is about one key, so only keyed functions receive it"
    if declared.scope.key_type is not None and isinstance(operator.body, WrappingFunction):
        return "windows and joins do not receive watermarks about one key"
    if identifier.startswith(RESERVED) and operator.function.dsv2_has_event_time:
        return "a function with event time does not receive it. Use on_event_time_watermark"
    return _problem_of_input(operator, handler) or _problem_of_method(operator, owner, handler.method)


def _problem_of_input(operator: Operator, handler: WatermarkHandler) -> str | None:
    inputs = _INPUTS.get(operator.kind, (None,))
    if handler.input in inputs:
        is_barrier = handler.declaration.combination_policy.barrier is not None
        first = inputs[0]
        if first is None or handler.input is first or not is_barrier:
            return None
        return f"a barrier cuts all inputs, and is delivered on the first one. Pass input={first.value!r}"
    if inputs == (None,):
        return "the function has one input. Omit input=..."
    names = " or ".join(f"input={one.value!r}" for one in inputs if one is not None)
    return f"it does not say on which input. Pass {names} to @on"


def _problem_of_method(operator: Operator, owner: object, name: str) -> str | None:
    if name.startswith("on_watermark") and any(name in vars(base) for base in _bases(owner)):
        return f"{name} receives all watermarks without a handler. Give the handler another name"
    outputs = ("first_output", "second_output") if operator.kind is OperatorKind.TWO_OUTPUT else ("output",)
    arguments = ("watermark", *outputs, "ctx")
    method = getattr(owner, name)
    if not takes(method, len(arguments)):
        return f"it must accept the arguments ({', '.join(arguments)})"
    if (kind := deferred_kind(method)) is not None:
        return f"it is a {kind}, so calling it would not run its body. Write a plain method"
    return None


def _bases(owner: object) -> list[type]:
    return [base for base in type(owner).__mro__ if base.__module__.partition(".")[0] == "dsv2"]
