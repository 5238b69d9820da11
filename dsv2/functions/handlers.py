"""Handlers of single watermarks: methods of process functions, marked with ``on``."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from dsv2.checks.arguments import as_choice
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkDeclaration,
    KeyedWatermark,
    KeyedWatermarkDeclaration,
    LongWatermark,
    LongWatermarkDeclaration,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
)

S = TypeVar("S")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)
W_co = TypeVar("W_co", covariant=True)
P = ParamSpec("P")

_MARK: Final = "_dsv2_handles"


class FunctionInput(Enum):
    """The inputs of a function that has two."""

    FIRST = "first"
    SECOND = "second"
    NON_BROADCAST = "non-broadcast"
    BROADCAST = "broadcast"


_InputName: TypeAlias = FunctionInput | Literal["first", "second", "non-broadcast", "broadcast"]


@dataclass(frozen=True, slots=True)
class WatermarkHandler:
    """A handler of one watermark.

    Attributes:
        declaration: The declaration of the watermark.
        input: The input on which it arrives. None: the function has one.
        method: The name of the method.
    """

    declaration: WatermarkDeclaration
    input: FunctionInput | None
    method: str


class _Mark(Generic[W_co]):
    """The decorator that ``on`` returns, for handlers of watermarks of type ``W_co``."""

    def __init__(self, declaration: WatermarkDeclaration, chosen: FunctionInput | None) -> None:
        self._handled = (declaration, chosen)

    def __call__(
        self, method: Callable[Concatenate[S, W_co, P], WatermarkHandlingResult], /
    ) -> Callable[Concatenate[S, W_co, P], WatermarkHandlingResult]:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), self._handled))
        return method


class _KeyMark(Generic[W_co]):
    """The decorator that ``on`` returns, for handlers of per-key watermarks of type ``W_co``."""

    def __init__(self, declaration: WatermarkDeclaration, chosen: FunctionInput | None) -> None:
        self._handled = (declaration, chosen)

    def __call__(self, method: Callable[Concatenate[S, W_co, P], None], /) -> Callable[Concatenate[S, W_co, P], None]:
        setattr(method, _MARK, (*getattr(method, _MARK, ()), self._handled))
        return method


@overload
def on(declaration: LongWatermarkDeclaration, *, input: _InputName | None = None) -> _Mark[LongWatermark]: ...
@overload
def on(declaration: BoolWatermarkDeclaration, *, input: _InputName | None = None) -> _Mark[BoolWatermark]: ...
@overload
def on(  # type: ignore[overload-overlap]  # the subclass has handlers of another shape
    declaration: KeyedWatermarkDeclaration[V, K], *, input: _InputName | None = None
) -> _KeyMark[KeyedWatermark[V, K]]: ...
@overload
def on(declaration: WatermarkDeclaration[V], *, input: _InputName | None = None) -> _Mark[Watermark[V]]: ...
def on(declaration: WatermarkDeclaration[Any], *, input: _InputName | None = None) -> _Mark[Any] | _KeyMark[Any]:
    """Mark a method of a process function as the handler of one watermark, with the type of its values.

    The method has the parameters and the result of ``on_watermark``. It is called instead of ``on_watermark``, which
    receives the watermarks that have no handler. A method that overrides a handler is one too. For a per-key watermark,
    ``on_key_watermark`` takes the place of ``on_watermark``: the context is that of the key, and there is no result.

    Args:
        declaration: The declaration of the watermark, which a function or source of the job declares.
        input: For functions with two inputs, the input on which it arrives: ``first`` or ``second``, or ``broadcast``
            or ``non-broadcast``. A method may be marked for both.

    Raises:
        WatermarkDeclarationError: ``declaration`` is not a declaration, or there is no such input.

    Examples:
        >>> from dsv2 import OneInputStreamProcessFunction, new_builder
        >>> BACKLOG = new_builder("backlog").type_float().combine_function_sum().build()
        >>> class Score(OneInputStreamProcessFunction[int, int]):
        ...     @on(BACKLOG)
        ...     def follow_backlog(self, watermark: Watermark[float], output, ctx):
        ...         self.is_behind = watermark.value > 1000
        ...         return WatermarkHandlingResult.PEEK
        ...
        ...     def process_record(self, record, output, ctx): ...
    """
    if not isinstance(declaration, WatermarkDeclaration):
        raise WatermarkDeclarationError(
            f"@on requires a watermark declaration, not {declaration!r}. Create one with new_builder(...)....build()."
        )
    chosen = None if input is None else as_choice(FunctionInput, input, "input", error=WatermarkDeclarationError)
    return (_KeyMark if isinstance(declaration, KeyedWatermarkDeclaration) else _Mark)(declaration, chosen)


def watermark_handlers(kind: type) -> list[WatermarkHandler]:
    """Return the handlers of a class of functions, in the order of its methods. Called once for each operator."""
    marks: dict[str, tuple[tuple[WatermarkDeclaration, FunctionInput | None], ...]] = {}
    for base in reversed(kind.__mro__):
        marks.update((name, mark) for name, one in vars(base).items() if (mark := getattr(one, _MARK, ())))
    return [
        WatermarkHandler(declaration, chosen, name)
        for name, handled in marks.items()
        for declaration, chosen in handled
    ]
