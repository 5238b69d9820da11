"""The side outputs of a function in one subtask, for the ``output`` of its contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv2.errors import ContractError, UndeclaredOutputError
from dsv2.graph.side_outputs import list_tags
from dsv2.model.output_tag import OutputTag
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
