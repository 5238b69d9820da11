"""The possible origins of one watermark, as far as the plan shows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dsv2.errors import ConfigurationError
from dsv2.graph import Exchange, OperatorKind
from dsv2.graph.reachability import reachable
from dsv2.jobs.progress import ChannelProgress, InputProgress
from dsv2.plan_view.model import EdgeView, OperatorView, PlanView, WatermarkView
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME, USE_PROCESSING_TIME
from dsv2.watermark.holders import Order, order_of
from dsv2.watermark.value_text import ShownValue

_PLAIN_NAME = "event-time"


class Route:
    """The ways of one watermark through a plan, and how its values are combined."""

    def __init__(self, view: PlanView, identifier: str) -> None:
        """``identifier``: The identifier, or ``event-time``.

        Raises:
            ConfigurationError: The plan declares no such watermark, or it is about single keys. Event time need not be
                declared.
        """
        self.view = view
        self.is_event_time = identifier in (_PLAIN_NAME, EVENT_TIME)
        self.identifier = EVENT_TIME if self.is_event_time else identifier
        same = (EVENT_TIME, USE_PROCESSING_TIME) if self.is_event_time else (identifier,)
        declared = [watermark for watermark in view.watermarks if watermark.identifier in same]
        if not declared and not self.is_event_time:
            others = [one.identifier for one in view.watermarks if one.identifier not in (*same, USE_PROCESSING_TIME)]
            raise ConfigurationError(
                f"The job declares no watermark {identifier!r}. It has: {', '.join([_PLAIN_NAME, *sorted(others)])}."
            )
        if any(one.key_type for one in declared):
            raise ConfigurationError(
                f"The watermark {identifier!r} is about single keys, so no value of it holds a function back. "
                f"Keyed functions know what they have received."
            )
        self._declared_by = {number for one in declared for number in one.declared_by}
        self._sent = frozenset(same)
        self._addressed_to = {number for one in declared for number in one.addressed_to}
        self._watermark: WatermarkView | None = None if self.is_event_time else declared[0]
        self._edges: dict[int, list[EdgeView]] = {operator.id: [] for operator in view.operators}
        for edge in sorted(view.edges, key=lambda edge: edge.input):
            self._edges[edge.target].append(edge)
        self._leading = self._with_upstream(self._addressed_to)

    @property
    def plain_name(self) -> str:
        """The identifier as users write it."""
        return _PLAIN_NAME if self.is_event_time else self.identifier

    @property
    def is_aligned(self) -> bool:
        """True if it blocks channels until all have sent it."""
        return self._watermark is not None and self._watermark.aligned

    @property
    def is_barrier(self) -> bool:
        """True if it is a barrier."""
        return self._watermark is not None and self._watermark.barrier is not None

    @property
    def waits_for_all(self) -> bool:
        """True if nothing is delivered until every channel has a value. Event time has rules of its own."""
        return self._watermark is not None and self._watermark.waits_for_all

    @property
    def order(self) -> Order:
        """The values of the channels that hold it back."""
        one = self._watermark
        return Order.LEAST if one is None else order_of(one.type, one.combination)

    def combines_inputs(self, operator: OperatorView) -> bool:
        """Return whether the operator forwards one value for all inputs."""
        if operator.kind is OperatorKind.UNION or self._watermark is None:
            return True
        return self._watermark.across_inputs

    def edges_into(self, operator: OperatorView) -> Sequence[EdgeView]:
        """The edges into an operator, by input."""
        return self._edges[operator.id]

    def declares(self, operator: OperatorView) -> bool:
        """Return whether an operator declares the watermark, so that it may emit it."""
        return operator.id in self._declared_by

    def arrives(self, edge: EdgeView) -> bool:
        """Return whether the watermark may arrive on an edge."""
        return not self._sent.isdisjoint(edge.carries)

    def is_withheld(self, edge: EdgeView) -> bool:
        """Return whether an edge does not carry the watermark, because it is addressed to operators elsewhere."""
        return bool(self._addressed_to) and edge.target not in self._leading

    def receives(self, operator: OperatorView) -> bool:
        """Return whether the watermark may arrive on any input."""
        return any(map(self.arrives, self.edges_into(operator)))

    def is_declared_upstream(self, operator: OperatorView) -> bool:
        """Return whether an operator, or one upstream of it, declares the watermark."""
        return not self._with_upstream({operator.id}).isdisjoint(self._declared_by)

    def _with_upstream(self, operators: Collection[int]) -> set[int]:
        """Operators, and all that are upstream of them."""
        return reachable(operators, lambda one: [edge.source for edge in self._edges[one]])

    def upstream(
        self, operator: OperatorView, subtask: int | None, number: int, channel: int | None
    ) -> tuple[OperatorView, int | None]:
        """Return the operator and the subtask that send to a channel of an input. The subtask is None if unknown."""
        edge = self.edges_into(operator)[number]
        sender = self.view.operators[edge.source]
        of_channel = subtask if edge.exchange is Exchange.FORWARD else channel
        if sender.parallelism == 1:
            return sender, 0
        return sender, of_channel if of_channel is not None and of_channel < sender.parallelism else None

    def of_channel(self, channel: ChannelProgress) -> ShownValue | None:
        """The value of a channel, or None. Event time that follows the wall clock is ``PROCESSING_TIME``."""
        return self._value(channel.event_time, channel)

    def of_input(self, one: InputProgress) -> ShownValue | None:
        """The combined value of an input, or None. Event time that follows the wall clock is ``PROCESSING_TIME``."""
        return self._value(one.event_time, one)

    def _value(self, time: int | None, part: ChannelProgress | InputProgress) -> ShownValue | None:
        if not self.is_event_time:
            return part.watermarks.get(self.identifier)
        return PROCESSING_TIME if part.watermarks.get(USE_PROCESSING_TIME) else time
