"""Values of the records before and after a record, for ``over``."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.aggregates.result_field import Part
from dsv2.checks.arguments import check_whole_number
from dsv2.errors import PlanError


@dataclass(frozen=True)
class Neighbour(Part):
    """The value of a field of another record of the same key, in the order of event time.

    It is None, or the default of the field of the result, if there is no such record. Unlike aggregates, it may be None
    because the field of that record is.

    Args:
        field: The name of the field.
        offset: The distance of the records, at least 1.

    Raises:
        PlanError: ``field`` is not a text.
        ConfigurationError: ``offset`` is not a whole number of at least 1.
    """

    field: str
    offset: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise PlanError(f"aggregate: {type(self).__name__} takes the name of a field, not {self.field!r}.")
        check_whole_number(self.offset, f"{type(self).__name__}: offset")


@dataclass(frozen=True)
class Lag(Neighbour):
    """The value of a field ``offset`` records before, see ``Neighbour`` (SQL ``LAG``)."""


@dataclass(frozen=True)
class Lead(Neighbour):
    """The value of a field ``offset`` records later, see ``Neighbour`` (SQL ``LEAD``).

    The result waits for that record, and has its timestamp. At the end of the input it has the greatest timestamp.
    """
