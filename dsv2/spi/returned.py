"""Callbacks emit through their collector: one that returns something instead is refused."""

from __future__ import annotations

import inspect

from dsv2.errors import ContractError

__all__ = ("check_returned", "refuse_returned")


def check_returned(value: object) -> None:
    """Raise ``ContractError`` if a callback that returns nothing has returned ``value``."""
    if value is not None:
        refuse_returned(value)


def refuse_returned(value: object) -> None:
    """Raise ``ContractError`` for ``value``, which a callback that returns nothing has returned.

    ``[output.collect(word) for word in words]``, as in a lambda, is no loss: it has only what ``collect`` returns.
    """
    if isinstance(value, list | tuple) and all(element is None for element in value):
        return
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        returned = "is a generator, which never runs"
    elif inspect.iscoroutine(value):
        value.close()  # else Python warns that nothing awaits it
        returned = "is a coroutine, which never runs"
    else:
        returned = f"returned {value!r:.200}, which goes nowhere"
    raise ContractError(f"The callback {returned}. Emit with output.collect(record), and return nothing.")
