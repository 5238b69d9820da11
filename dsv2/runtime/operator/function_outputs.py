"""The outputs of a function in one subtask, as its contexts name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv2.errors import ContractError, UndeclaredOutputError
from dsv2.graph import Operator
from dsv2.graph.side_outputs import list_tags
from dsv2.model.output_tag import MainOutput, OutputTag
from dsv2.runtime.exchange.collector import OutputCollector


class SideOutputs:
    """Emits to the collector of a tag."""

    __slots__ = ("_by_name",)

    def __init__(self, collectors: Mapping[OutputTag[Any], OutputCollector]) -> None:
        self._by_name = {tag.name: (tag, collector) for tag, collector in collectors.items()}

    def output(self, tag: OutputTag[Any], record: Any) -> None:
        """Emit ``record`` with the timestamp of the current record or timer."""
        self._collector(tag).collect(record)

    def output_stamped(self, tag: OutputTag[Any], record: Any, timestamp: int | None) -> None:
        """Emit ``record`` with ``timestamp`` (ms), or without one."""
        self._collector(tag).collect_stamped(record, timestamp)

    def _collector(self, tag: OutputTag[Any]) -> OutputCollector:
        declared, collector = self._by_name.get(getattr(tag, "name", ""), (None, None))
        if collector is None or (declared is not tag and declared != tag):
            raise self._refused(tag)
        return collector

    def _refused(self, tag: object) -> Exception:
        if not isinstance(tag, OutputTag):
            return ContractError(f"output takes an OutputTag and a record, but the tag is {tag!r}.")
        declared = list_tags([known for known, _ in self._by_name.values()])
        return UndeclaredOutputError(
            f"The side output {tag!r} is not declared by this function (declared: {declared}). Return it from "
            f"declare_outputs(); if the function is a plain callable, read side_output(tag) of its result."
        )


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
