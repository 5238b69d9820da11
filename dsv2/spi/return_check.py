"""Rejects callbacks that return a value: they must emit through their collector."""

from __future__ import annotations

import inspect

from dsv2.errors import ContractError


def check_returned(value: object) -> None:
    """Check that a callback without a return value returned None.

    Raises:
        ContractError: It returned something else.
    """
    if value is not None:
        refuse_returned(value)


def refuse_returned(value: object) -> None:
    """Raise an error for ``value``, which a callback without a return value returned.

    A list of None is accepted: ``[output.collect(word) for word in words]`` in a lambda emits correctly.

    Raises:
        ContractError: Unless ``value`` is a list or tuple of None.
    """
    if isinstance(value, list | tuple) and all(element is None for element in value):
        return
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        returned = "is a generator, which never runs"
    elif inspect.iscoroutine(value):
        value.close()  # avoids Python's warning about a coroutine that was never awaited
        returned = "is a coroutine, which never runs"
    else:
        returned = f"returned {value!r:.200}, which is discarded"
    raise ContractError(f"The callback {returned}. Emit with output.collect(record), and return nothing.")
