"""The outputs along which a function may emit a watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv2.errors import ContractError, UndeclaredOutputError
from dsv2.graph import Operator
from dsv2.graph.side_outputs import list_tags
from dsv2.model.output_tag import MainOutput, OutputTag


class WatermarkOutputs:
    """Numbers the outputs of ``operator`` as users name them."""

    __slots__ = ("_main", "_tags")

    def __init__(self, operator: Operator) -> None:
        names = list(MainOutput)[: len(operator.output_keys)]
        self._main: Mapping[object, int] = {
            name: number for number, main in enumerate(names) for name in (main, main.value)
        }
        self._tags = {tag.name: (tag, len(names) + number) for number, tag in enumerate(operator.side_outputs)}

    def number_of(self, output: object) -> int:
        """Return the number of an output in the plan.

        Raises:
            UndeclaredOutputError: The function does not have it.
            ContractError: ``output`` is not an output.
        """
        if isinstance(output, OutputTag):
            declared, number = self._tags.get(output.name, (None, -1))
            if declared == output:
                return number
            raise UndeclaredOutputError(
                f"The side output {output!r} is not declared by this function (declared: "
                f"{list_tags([tag for tag, _ in self._tags.values()])}). Return it from declare_outputs()."
            )
        if isinstance(output, MainOutput | str) and output in self._main:
            return self._main[output]
        raise self._refused(output)

    def _refused(self, output: Any) -> Exception:
        has = ", ".join(repr(name) for name in self._main if isinstance(name, str))
        if output in (*MainOutput, *(main.value for main in MainOutput)):
            return UndeclaredOutputError(f"This function has no output {output!r}. Its outputs: {has}.")
        return ContractError(
            f"The output of emit_watermark must be {has}, or the OutputTag of a side output, not {output!r}."
        )
