"""Values of watermarks of enumerators, in the offsets of sources, which are JSON."""

from __future__ import annotations

from typing import Any

from dsv2.errors import ContractError
from dsv2.watermark import VectorClock, Watermark

_SET, _VECTOR = "set", "vector"


def value_to_json(watermark: Watermark) -> Any:
    """Return the value of ``watermark`` as JSON.

    Raises:
        ContractError: It is an instance of a data class, or a set of such.
    """
    value = watermark.value
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, VectorClock):
        return {_VECTOR: dict(value)}
    if isinstance(value, frozenset) and all(isinstance(member, int | float | str) for member in value):
        return {_SET: sorted(value)}
    raise ContractError(
        f"The enumerator of a source cannot emit {watermark}, because offsets have no instances of data classes. Emit "
        f"it in a reader, or declare another type: numbers, booleans, strings, vectors, or sets of these."
    )


def value_from_json(value: Any) -> Any:
    """Return the watermark value for ``value``, as JSON represents it."""
    if not isinstance(value, dict):
        return value
    return VectorClock(value[_VECTOR]) if _VECTOR in value else frozenset(value[_SET])
