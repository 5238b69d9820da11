"""Whether the callbacks that users define take what they will be given: checked while the plan is built.

Some are called late, when a window fires or the input ends; by then a job may have run for days.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from dsv2.callables import takes
from dsv2.errors import PlanError
from dsv2.functions import WrappingFunction
from dsv2.graph.plan import Operator
from dsv2.state import AggregatingStateDeclaration

__all__ = ("check_callbacks",)


def check_callbacks(operator: Operator) -> None:
    """Look at what the user wrote for ``operator``. Raises ``PlanError`` for a callback of another shape than its base.

    Only the number of arguments is compared; type checkers see more.
    """
    for part in _parts(operator):
        kind = type(part)
        for name, parameters in _overridden(kind):
            if not takes(getattr(part, name), len(parameters)):
                taken = inspect.signature(getattr(kind, name)).parameters
                raise PlanError(
                    f"{operator} at {operator.location}: {kind.__qualname__}.{name} is called with "
                    f"({', '.join(parameters)}), which it does not take: it is defined as {name}({', '.join(taken)})."
                )


def _parts(operator: Operator) -> Iterator[object]:
    function = operator.function
    if isinstance(function, WrappingFunction):
        yield from function.written_by_user
    else:
        yield function
    for declaration in function.uses_states():
        if isinstance(declaration, AggregatingStateDeclaration):
            yield declaration.function


def _overridden(kind: type) -> Iterator[tuple[str, list[str]]]:
    """The callbacks of ours that ``kind`` defines anew, with the parameters that ours have."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "dsv2":
            for name, method in vars(base).items():
                is_ours = name.startswith("_") or getattr(kind, name) is method
                if inspect.isfunction(method) and not is_ours:
                    yield name, list(inspect.signature(method).parameters)[1:]
