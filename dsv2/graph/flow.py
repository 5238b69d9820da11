"""The flow of watermarks, as far as the plan shows.

Functions emit watermarks in code. Any function may emit one that another function or source declares, so the plan only
shows where a watermark is declared, and which inputs are downstream of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.functions import ProcessFunction
from dsv2.graph.observers import ON_WATERMARK
from dsv2.graph.per_key import key_callback, receives_keys
from dsv2.graph.plan import Edge, Operator, OperatorKind, Plan
from dsv2.graph.watermark_handlers import handlers_of, owner_of_handlers
from dsv2.sources import BaseSource
from dsv2.watermark import WatermarkHandlingStrategy
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, USE_PROCESSING_TIME

OF_EVENT_TIME = frozenset((EVENT_TIME, IDLE_STATUS, USE_PROCESSING_TIME))
"""The identifiers of event time. Functions with event time act on them in another way than ``on_watermark``."""

_BUILT_IN = ("dsv2.functions.", "dsv2.extension.", "dsv2.arrow.", "dsv2.aggregates.")


class Flow:
    """The watermarks that may be sent and received in ``plan``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.functions = [operator for operator in plan.operators if isinstance(operator.body, ProcessFunction)]
        self.declared = {operator.id: _declared(operator) for operator in plan.operators}
        self._forwarded = {
            identifier
            for identifier, declaration in plan.declarations.items()
            if declaration.default_handling_strategy is WatermarkHandlingStrategy.FORWARD
        }
        self._barriers = {name for name, one in plan.declarations.items() if one.combination_policy.barrier is not None}
        self._sent: dict[int, frozenset[str]] = {}
        for operator in plan.operators:  # upstream operators come first
            received = self._passed_on(operator)
            self._sent[operator.id] = received | set(self.declared[operator.id])
        self._endless = plan.downstream_of(
            one.id for one in plan.operators if isinstance(one.body, BaseSource) and not one.body.bounded
        )

    def _passed_on(self, operator: Operator) -> frozenset[str]:
        per_key = self.plan.per_key
        received = self.received(operator)
        plain = received & (self._forwarded | operator.passes_on) - per_key
        return plain if receives_keys(operator) else plain | received & per_key

    def arriving(self, edge: Edge) -> frozenset[str]:
        """The identifiers that may arrive on ``edge``."""
        return self._sent[edge.source] - edge.without

    def withheld(self, edge: Edge) -> frozenset[str]:
        """The identifiers that may be sent at the start of ``edge``, and are addressed to operators elsewhere."""
        return self._sent[edge.source] & edge.without

    def addressed(self, operator: Operator) -> tuple[str, ...]:
        """The identifiers of the watermarks that are addressed to ``operator``."""
        is_function = isinstance(operator.body, ProcessFunction) and operator.kind is not OperatorKind.UNION
        return tuple(
            identifier
            for identifier, declaration in self.plan.declarations.items()
            if is_function and declaration.scope.is_addressed and identifier not in operator.passes_on
        )

    def received(self, operator: Operator) -> frozenset[str]:
        """The identifiers that may arrive on any input of ``operator``."""
        return frozenset[str]().union(*map(self.arriving, self.plan.edges_into[operator.id]))

    def receivers(self, identifier: str) -> Iterator[Operator]:
        """The functions that may receive a watermark."""
        return (operator for operator in self.functions if identifier in self.received(operator))

    def handles(self, operator: Operator, identifier: str) -> bool:
        """Return whether the function of ``operator``, which may receive a watermark, acts on it."""
        function = operator.function
        if identifier in operator.passes_on:
            return False
        if identifier in OF_EVENT_TIME and function.dsv2_has_event_time:
            return True
        wait = operator.broadcast_wait
        if wait is not None and wait.identifier == identifier:
            return True
        per_key = self.plan.declarations[identifier].scope.key_type is not None
        inputs = [number for number, _ in (key_handlers(operator) if per_key else handlers(operator))]
        inputs += [
            handler.input for handler in handlers_of(operator.body, operator.kind) if handler.identifier == identifier
        ]
        return any(identifier in self.delivered(operator, number) for number in inputs)

    def delivered(self, operator: Operator, number: int) -> frozenset[str]:
        """The identifiers that the callbacks of ``operator`` for an input may receive. Barriers come on the first."""
        arriving = self.arriving(self.plan.edges_into[operator.id][number])
        barriers = self.received(operator) & self._barriers
        return arriving - barriers if number else arriving | barriers

    def may_never_end(self, edge: Edge) -> bool:
        """Return whether a source upstream of ``edge`` is unbounded."""
        return edge.source in self._endless

    def downstream(self, operator: Operator) -> Iterator[Operator]:
        """The functions downstream of ``operator``, and itself."""
        reached = self.plan.downstream_of([operator.id])
        return (other for other in self.functions if other.id in reached)


def handlers(operator: Operator) -> Iterator[tuple[int, str]]:
    """The inputs for which the function of ``operator`` overrides the callback for watermarks, with its name."""
    return _overridden(operator, ON_WATERMARK.get(operator.kind, ("on_watermark",)))


def key_handlers(operator: Operator) -> Iterator[tuple[int, str]]:
    """The inputs for which a keyed function overrides the callback for per-key watermarks, with its name."""
    if receives_keys(operator):
        yield from overridden_for_keys(operator)


def overridden_for_keys(operator: Operator) -> Iterator[tuple[int, str]]:
    """As ``key_handlers``, whether or not the function is keyed."""
    names = ON_WATERMARK.get(operator.kind, ("on_watermark",))
    return _overridden(operator, [key_callback(name) for name in names])


def _overridden(operator: Operator, callbacks: Sequence[str]) -> Iterator[tuple[int, str]]:
    function = operator.function
    if operator.kind is OperatorKind.UNION:
        return
    for number, name in enumerate(callbacks):
        owner = owner_of_handlers(function)
        kind = type(owner if hasattr(owner, name) else function)
        definer = next((base for base in kind.__mro__ if name in vars(base)), None)  # None: not for such functions
        if definer is not None and not f"{definer.__module__}.".startswith(_BUILT_IN):
            yield number, name


def _declared(operator: Operator) -> tuple[str, ...]:
    of_strategy = () if operator.watermarks is None else operator.watermarks.declarations
    return tuple(dict.fromkeys(one.identifier for one in (*operator.declared_watermarks, *of_strategy)))
