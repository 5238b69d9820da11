"""The operators that watermarks are addressed to, and the edges and operators between them and the emitters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from dsv2.errors import WatermarkDeclarationError
from dsv2.functions import ProcessFunction
from dsv2.graph.per_key import receives_keys
from dsv2.graph.plan import Edge, Operator, OperatorKind
from dsv2.graph.reachability import reachable
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingStrategy
from dsv2.watermark.combination_function import is_idempotent


def with_addresses(
    operators: Sequence[Operator],
    edges: Sequence[Edge],
    declarations: Mapping[str, WatermarkDeclaration],
    *,
    is_part: bool,
) -> tuple[tuple[Operator, ...], tuple[Edge, ...]]:
    """Return the operators and edges of the graph in which addressed watermarks only go where an operator acts on them.

    Args:
        operators: The operators, upstream first.
        edges: The edges between them.
        declarations: The declarations of the job by identifier.
        is_part: Whether ``operators`` are a part of the pipeline. Then the addressed ones may be missing.

    Raises:
        WatermarkDeclarationError: A watermark is addressed to operators that do not exist, or that it cannot reach.
    """
    passed_on: dict[int, set[str]] = {operator.id: set() for operator in operators}
    without: dict[Edge, set[str]] = {edge: set() for edge in edges}
    for declaration in declarations.values():
        if not declaration.scope.is_addressed:
            continue
        flow = _Flow(operators, edges, declaration)
        if not is_part:
            flow.check()
        for operator in operators:
            if operator.id not in flow.addressed:
                passed_on[operator.id].add(declaration.identifier)
        for edge in edges:
            if edge.target not in flow.leading:
                without[edge].add(declaration.identifier)
    return (
        tuple(replace(one, passes_on=frozenset(passed_on[one.id])) if passed_on[one.id] else one for one in operators),
        tuple(replace(edge, without=frozenset(without[edge])) if without[edge] else edge for edge in edges),
    )


class _Flow:
    """The possible senders of one addressed watermark, and its addressees."""

    def __init__(self, operators: Sequence[Operator], edges: Sequence[Edge], declaration: WatermarkDeclaration) -> None:
        self._operators = operators
        self._declaration = declaration
        self._scope = declaration.scope
        self._forwards = declaration.default_handling_strategy is WatermarkHandlingStrategy.FORWARD
        self._into: dict[int, list[int]] = {operator.id: [] for operator in operators}
        for edge in edges:
            self._into[edge.target].append(edge.source)
        self._emitters = [operator for operator in operators if operator.declares(declaration.identifier)]
        self.addressed = {operator.id for operator in operators if self._is_addressed(operator)}
        """The operators that act on the watermark."""
        self.leading = reachable(self.addressed, self._into.__getitem__)
        """These, and the operators before them."""

    def check(self) -> None:
        """Raise ``WatermarkDeclarationError`` if the watermark cannot reach those that it is addressed to."""
        uids = [operator.uid for operator in self._operators if _is_function(operator) and not operator.automatic_uid]
        of_uid = {operator.uid: operator for operator in self._operators}
        for uid in self._scope.uids:
            if uid not in uids:
                self._fail_unknown(uid, of_uid.get(uid), uids)
        groups = {group: [one for one in self._operators if group in one.groups] for group in self._scope.groups}
        known = sorted({group for operator in self._operators for group in operator.groups})
        for group, members in groups.items():
            if not members:
                raise self._error(
                    f"is addressed to the group {group!r}, which has no operator. Groups with operators: "
                    f"{_by_distance(group, known)}. Add with_group({group!r}) to an operator."
                )
        reached = self._reached()
        self._check_copies(reached)
        for uid in self._scope.uids:
            if of_uid[uid].id not in reached:
                raise self._error(f"{self._unreachable(of_uid[uid])}")
        for group, members in groups.items():
            if not any(member.id in reached for member in members):
                raise self._error(f"is addressed to the group {group!r}, but {self._unreachable(members[0])}")

    def _check_copies(self, reached: set[int]) -> None:
        """Refuse operators that would pass on a combination whose copies must not be combined again."""
        function = self._declaration.combination_policy.combination_function
        if is_idempotent(function):
            return
        for operator in self._operators:
            if operator.id in reached & self.leading - self.addressed:
                raise self._error(
                    f"is combined with {function.value}, so {operator} at {operator.location} cannot pass it on: the "
                    f"next functions would combine copies of its result. Address it to this operator, which may emit "
                    f"the result as another watermark."
                )

    def _reached(self) -> set[int]:
        emitters = {operator.id for operator in self._emitters}
        reached: set[int] = set()
        for operator in self._operators:
            if any(source in emitters or self._passes(source, reached) for source in self._into[operator.id]):
                reached.add(operator.id)
        return reached

    def _passes(self, operator: int, reached: set[int]) -> bool:
        if self._scope.key_type is not None and receives_keys(self._operators[operator]):
            return False
        return operator in reached and (self._forwards or operator not in self.addressed)

    def _is_addressed(self, operator: Operator) -> bool:
        if not _is_function(operator):
            return False
        by_uid = not operator.automatic_uid and operator.uid in self._scope.uids
        return by_uid or not operator.groups.isdisjoint(self._scope.groups)

    def _fail_unknown(self, uid: str, found: Operator | None, known: Sequence[str]) -> None:
        if found is not None and not found.automatic_uid:
            raise self._error(
                f"is addressed to {found} at {found.location}, which is a {found.kind.value} and has no on_watermark. "
                f"Address it to functions: {_by_distance(uid, known)}."
            )
        raise self._error(
            f"is addressed to the uid {uid!r}, which no operator has. The uids that the program sets on functions: "
            f"{_by_distance(uid, known)}. Set it with with_uid({uid!r}), or correct deliver_to."
        )

    def _unreachable(self, operator: Operator) -> str:
        emitters = ", ".join(f"{emitter} at {emitter.location}" for emitter in self._emitters)
        return (
            f"cannot reach {operator} at {operator.location}, which it is addressed to: that is not downstream of the "
            f"operators that declare the watermark ({emitters}), or only behind one that ends it. Declare it in the "
            f"function that emits it."
        )

    def _error(self, problem: str) -> WatermarkDeclarationError:
        first = self._emitters[0]
        return WatermarkDeclarationError(
            f"Watermark {self._declaration.identifier!r}, declared by {first} at {first.location}, {problem}"
        )


def _is_function(operator: Operator) -> bool:
    return isinstance(operator.body, ProcessFunction) and operator.kind is not OperatorKind.UNION


def _by_distance(name: str, known: Iterable[str]) -> str:
    """The ``known`` names, those similar to ``name`` first."""
    names = sorted(known)
    close = get_close_matches(name, names, len(names) or 1)
    return ", ".join(map(repr, [*close, *(other for other in names if other not in close)])) or "none"
