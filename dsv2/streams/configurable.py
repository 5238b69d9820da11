"""The handle on an operator: its uid, name and parallelism (FLIP-410; Flink ``ProcessConfigurable``)."""

from __future__ import annotations

from typing import Self

from dsv2.errors import ConfigurationError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, Node, OperatorKind, PlanBuilder
from dsv2.graph.builder import MAX_PARALLELISM, caller_location
from dsv2.graph.error_policies import checked_policy
from dsv2.model.error_policy import ErrorPolicy


class ProcessConfigurable:
    """The handle on a new operator. Every method returns the object itself, so calls can be chained."""

    def __init__(self, builder: PlanBuilder, ref: InputRef) -> None:
        self._builder = builder
        self._ref = ref

    @property
    def _node(self) -> Node:
        self._builder.require_open()
        return self._ref.node

    def with_uid(self, uid: str) -> Self:
        """Set the name of the operator in checkpoints.

        Set a uid on every operator whose state should survive changes of the program.

        Args:
            uid: A non-empty string, unique in the job.

        Raises:
            ConfigurationError: ``uid`` is empty. ``execute`` raises it for a uid that is used twice.
        """
        self._node.uid = _non_empty(uid, "uid")
        return self

    def with_name(self, name: str) -> Self:
        """Set the name of the operator in progress reports, errors and plans.

        Args:
            name: A non-empty string.

        Raises:
            ConfigurationError: ``name`` is empty.
        """
        self._node.name = _non_empty(name, "name")
        return self

    def with_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks.

        Args:
            parallelism: At least 1. Must be 1 on a global stream.

        Raises:
            ConfigurationError: ``parallelism`` is out of range.
        """
        self._node.parallelism = self._checked_count(parallelism, "parallelism")
        return self

    def with_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, which is the upper bound of the parallelism.

        Args:
            max_parallelism: At least 1. Must be 1 on a global stream.

        Raises:
            ConfigurationError: ``max_parallelism`` is out of range.
        """
        self._node.max_parallelism = self._checked_count(max_parallelism, "max parallelism")
        return self

    def with_group(self, name: str) -> Self:
        """Add the operator to a group, to which watermarks can be addressed (``deliver_to_group`` of their builder).

        An operator may be in several groups: call the method for each of them.

        Args:
            name: A non-empty string.

        Raises:
            ConfigurationError: ``name`` is empty, or the operator is a source, a sink or a union, which has no
                callback for watermarks.
        """
        node = self._node
        if not isinstance(node.body, ProcessFunction) or node.kind is OperatorKind.UNION:
            raise ConfigurationError(
                f"{node.name} at {caller_location()}: only functions can be in a group, because only they have "
                f"callbacks for watermarks."
            )
        node.groups |= {_non_empty(name, "group")}
        return self

    def with_error_policy(self, policy: ErrorPolicy) -> Self:
        """Set what happens when a callback of the operator raises. See ``ErrorPolicy``.

        The policy of a source applies to values that cannot be decoded. That of a sink applies to records that do not
        fit it: they are checked before they reach the sink.

        Args:
            policy: The policy. An empty one, ``ErrorPolicy()``, fails the job, whatever the environment's default is.

        Raises:
            ConfigurationError: ``policy`` is not an ``ErrorPolicy``. ``execute`` raises ``PlanError`` for operators
                that cannot have one, such as functions on Arrow tables.
        """
        self._node.error_policy = checked_policy(policy, f"{self._node.name} at {caller_location()}")
        return self

    def _checked_count(self, value: int, what: str) -> int:
        where = f"{self._node.name} at {caller_location()}"
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PARALLELISM:
            raise ConfigurationError(
                f"{where}: {what} must be a whole number from 1 to {MAX_PARALLELISM}, not {value!r}."
            )
        if self._node.non_parallel and value != 1:
            raise ConfigurationError(f"{where}: the {what} of a global stream must be 1, not {value}.")
        return value


def _non_empty(text: str, what: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"A {what} must be a non-empty string, not {text!r} (at {caller_location()}).")
    return text
