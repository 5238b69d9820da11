"""The base of declarations that become a function when the streams are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from dsv2.errors import PlanError
from dsv2.spi.process_function import ProcessFunction


class TwoInputDeclaration(ABC):
    """A declaration for ``connect_and_process`` of two keyed streams."""

    @abstractmethod
    def function_of(
        self, types: Sequence[Any], selectors: Sequence[Callable[[Any], Any] | None], *, keeps_keys: bool
    ) -> ProcessFunction:
        """Return the function.

        Args:
            types: The record types of the streams, as far as they are declared.
            selectors: Their key selectors.
            keeps_keys: Whether the result stays keyed.

        Raises:
            PlanError: The declaration does not fit the streams.
        """

    @property
    @abstractmethod
    def not_keyed(self) -> PlanError:
        """The error for streams that are not keyed."""
