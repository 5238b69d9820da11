"""Side outputs and dead letters of operators, and the handles that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsv2.base.type_variables import OUT
from dsv2.errors import PlanError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, Node, PlanBuilder
from dsv2.graph.builder import caller_location, kind_of
from dsv2.graph.plan import DEAD_LETTERS
from dsv2.graph.side_outputs import find_output
from dsv2.model.error_policy import DeadLetter
from dsv2.model.output_tag import OutputTag
from dsv2.streams.configurable import ProcessConfigurable

if TYPE_CHECKING:
    from dsv2.streams.kinds import ConfiguredGlobalStream, ConfiguredStream


class WithDeadLetters(ProcessConfigurable):
    """The handle on an operator that can have dead letters."""

    def dead_letters(self, record_type: type[OUT]) -> ConfiguredStream[DeadLetter[OUT]]:
        """The dead letters of a function, or the records that do not fit a sink; see ``ErrorPolicy.dead_letter``.

        ``record_type``: That of its input.
        """
        return configured(self._builder, _dead_letters(self._node))


class WithSideOutputs(WithDeadLetters):
    """The handle on an operator whose function can have side outputs."""

    def side_output(self, tag: OutputTag[OUT]) -> ConfiguredStream[OUT]:
        """The records that the function emits with ``ctx.output(tag, record)``. The stream is not keyed.

        Raises:
            PlanError: The function does not return ``tag`` from ``declare_outputs``.
        """
        return configured(self._builder, side_output(self._node, tag))


class ConfiguredSink(WithDeadLetters):
    """The handle on a sink."""


def configured(builder: PlanBuilder, ref: InputRef) -> ConfiguredStream[Any]:
    """Return the output ``ref`` of an operator as a stream without keys."""
    from dsv2.streams.kinds import ConfiguredStream  # whose base classes use this

    return ConfiguredStream(builder, ref)


def configured_global(builder: PlanBuilder, ref: InputRef) -> ConfiguredGlobalStream[Any]:
    """Return the output ``ref`` of an operator as a global stream."""
    from dsv2.streams.kinds import ConfiguredGlobalStream  # whose base classes use this

    return ConfiguredGlobalStream(builder, ref)


def side_output(node: Node, tag: OutputTag[Any]) -> InputRef:
    """The side output ``tag`` of an operator. Raises ``PlanError`` if its function does not declare it."""
    where = f"side_output at {caller_location()}"
    if not isinstance(tag, OutputTag):
        raise PlanError(f"{where} takes an OutputTag, not {kind_of(tag)}.")
    reading_declares = isinstance(node.body, ProcessFunction) and node.body.dsv2_reading_declares
    number = find_output(node.side_outputs, tag, reading_declares, f"{where}, of {node.name} at {node.location}")
    return InputRef(node, len(node.output_keys) + number)


def _dead_letters(node: Node) -> InputRef:
    """The dead letters of an operator."""
    if DEAD_LETTERS not in node.side_outputs:
        node.side_outputs.append(DEAD_LETTERS)
    return InputRef(node, len(node.output_keys) + node.side_outputs.index(DEAD_LETTERS))


def preserving(ref: InputRef) -> InputRef:
    """The output ``ref`` of an operator whose output keeps the key of its input, without an exchange."""
    node = ref.node
    return InputRef(node, ref.output, None, node.output_keys[ref.output], node.output_key_version)
