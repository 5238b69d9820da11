"""The uids of operators in a checkpoint: user-defined and automatic ones.

An automatic uid is a hash of the class of the function, the names of its states, and the uids of the operators that it
reads from. For a source it is a hash of its class and name. So it does not change when other operators are added or
removed, or when lines are reordered. (Flink ``StreamGraphHasherV2`` hashes the position in the graph.) Stateless
operators are skipped on the way to the inputs.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsv2.errors import ConfigurationError, MissingUidWarning
from dsv2.functions import ProcessFunction
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.graph.state_detection import may_keep_state
from dsv2.sources import BaseSource
from dsv2.spi import WrappingFunction
from dsv2.state import StateDeclaration

if TYPE_CHECKING:
    from dsv2.graph.builder import InputRef, Node

_HOLDERS = ("wrapped", "function", "predicate")  # attributes of dsv2 classes that hold a function of the user


@dataclass(frozen=True, slots=True)
class Uid:
    """The uid of one operator.

    Attributes:
        text: The uid.
        automatic: Whether the user gave no uid.
        twin: The location of another operator whose automatic uid differs only in a number, or None.
    """

    text: str
    automatic: bool = False
    twin: str | None = None


def uids_of(nodes: Sequence[Node]) -> list[Uid]:
    """The uids of ``nodes``, indexed by id. Raises ``ConfigurationError`` for a uid that is used twice."""
    taken: dict[str, Node] = {}
    for node in nodes:
        if node.uid is None:
            continue
        if other := taken.get(node.uid):
            raise ConfigurationError(
                f"Two operators have the uid {node.uid!r}: {other.name} at {other.location} and "
                f"{node.name} at {node.location}. A uid must be unique in the job."
            )
        taken[node.uid] = node
    origins = _AutomaticUids(nodes)
    uids: list[Uid] = []
    for node in nodes:
        if node.uid is not None:
            uids.append(Uid(node.uid))
            continue
        text = origins.uid(node)
        twins = [other for other in nodes if other is not node and other.uid is None and origins.uid(other) == text]
        number = 1 + sum(other.id < node.id for other in twins)
        text = text if number == 1 else f"{text}-{number}"
        while text in taken:
            text += "'"
        taken[text] = node
        uids.append(Uid(text, automatic=True, twin=twins[0].location if twins else None))
    return uids


class _AutomaticUids:
    """Automatic uids, without the numbers that make equal ones unique."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._uids: dict[int, str] = {}
        self._passed_over: dict[int, InputRef] = {}
        for node in nodes:  # upstream nodes come first
            self._uids[node.id] = node.uid if node.uid is not None else self._new(node)
            if node.uid is None and isinstance(node.body, ProcessFunction) and not may_keep_state(node.body):
                ref = node.inputs[0]
                self._passed_over[node.id] = self._passed_over.get(ref.node.id, ref)

    def uid(self, node: Node) -> str:
        return self._uids[node.id]

    def _new(self, node: Node) -> str:
        called = _called(node.body)
        described: dict[str, object] = {
            "kind": node.kind.value,
            "class": [_name(node.body), _name(called)],
            "states": _states(node.body),
            "source": node.name if isinstance(node.body, BaseSource) else "",
            "inputs": [[*self._origin(ref), ref.key_selector is not None] for ref in node.inputs],
        }
        digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:8]
        label = _name(called).rpartition(".")[2]
        return f"{label if label.isidentifier() else type(node.body).__name__}-{digest}"

    def _origin(self, ref: InputRef) -> tuple[str, int | str]:
        """The uid of the nearest upstream operator with state or a user-defined uid, and its output."""
        ref = self._passed_over.get(ref.node.id, ref)
        return self._uids[ref.node.id], ref.node.output_name(ref.output)


def _called(body: object) -> object:
    """The user's own object: the callable in a ``MapFunction``, the function in a window."""
    if isinstance(body, functools.partial):
        return _called(body.func)
    if type(body).__module__.partition(".")[0] == "dsv2":
        for name in _HOLDERS:
            if (held := getattr(body, name, None)) is not None:
                return _called(held)
    return body


def _name(value: object) -> str:
    name: str = getattr(value, "__qualname__", type(value).__qualname__)
    return name


def _states(body: object) -> list[str]:
    if not isinstance(body, ProcessFunction):
        return []
    declared: list[Any] = [body.uses_states()]
    layout = []
    if isinstance(body, WrappingFunction):
        declared.append(body.further_states())
        layout = [body.state_layout]
    names = {
        declaration.name
        for declarations in declared
        if isinstance(declarations, Collection)  # otherwise a later check refuses the plan
        for declaration in declarations
        if isinstance(declaration, StateDeclaration)
    }
    return [*sorted(names), *layout]


def check_uids(plan: Plan) -> None:
    """Check the stateful operators that have an automatic uid.

    Warns about each function, at the line that created the operator. Raises ``ConfigurationError`` for operators that
    differ only in their order: if they were reordered, each would restore the state of the other.
    """
    unnamed = [operator for operator in plan.operators if operator.automatic_uid and may_keep_state(operator.body)]
    if twins := [operator for operator in unnamed if operator.twin is not None]:
        listed = "\n".join(f"  - {_shown(operator)} like the operator at {operator.twin}" for operator in twins)
        raise ConfigurationError(
            f"These stateful operators differ from others of the same class with the same inputs only in their "
            f"order:\n{listed}\n"
            f"Set a uid on each of them: with_uid(...)."
        )
    for operator in unnamed:
        if operator.kind is not OperatorKind.SOURCE:  # Spark identifies sources by their order
            text = (
                f"{_shown(operator)} has state and no uid. The checkpoint identifies it by its class, its states and "
                f"its inputs, so a restart is refused if one of these has changed. Set a uid: with_uid(...)."
            )
            operator.warn(text, MissingUidWarning)


def _shown(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location},"
