"""The channels of a plan, which the renderers draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dsv2.base.printable import printable
from dsv2.errors import ConfigurationError
from dsv2.graph import Exchange, OperatorKind
from dsv2.plan_view.model import EdgeView, OperatorView, PlanView, WatermarkView
from dsv2.views.explain.channels.roles import is_blocked, roles_of
from dsv2.views.explain.wording import exchange_text, watermark_name, watermark_rules

_MOST = 3  # subtasks of an operator that are drawn


class Mark(Enum):
    """The watermarks that a channel carries.

    ``CARRIES``: the watermarks of the diagram. ``OF_KEY``: a watermark about one key, if subtask 0 has the key.
    ``OF_OTHER_KEYS``: likewise, about keys of its own subtask. ``BARE``: none of the watermarks of the diagram.
    """

    CARRIES = "carries"
    OF_KEY = "of key"
    OF_OTHER_KEYS = "of other keys"
    BARE = "bare"


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel from a subtask to a subtask, and what it carries."""

    source: int
    target: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class EdgeChannels:
    """The channels of an edge.

    Attributes:
        edge: The edge.
        exchange: How records are distributed.
        carried: The names of the watermarks of the diagram that it carries.
        blocked: Whether a channel is blocked after its aligned watermark until other channels have sent theirs.
        channels: The channels between subtasks that are drawn.
    """

    edge: EdgeView
    exchange: str
    carried: tuple[str, ...]
    blocked: bool
    channels: tuple[Channel, ...]

    @property
    def label(self) -> str:
        """A short text for diagrams, which show by lines whether the watermarks of the diagram are carried."""
        without = f", without {', '.join(self.edge.without)}" if self.edge.without else ""
        side = f"{self.edge.output}: " if isinstance(self.edge.output, str) else ""
        return f"{side}{self.exchange}{without}"


@dataclass(frozen=True, slots=True)
class OperatorChannels:
    """An operator. ``roles``: What each of its subtasks does with the watermarks of the diagram."""

    operator: OperatorView
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelsView:
    """Channels of a plan.

    Attributes:
        title: What the diagram shows.
        rules: How the values of the watermark are combined and delivered. "": the diagram shows all watermarks.
        operators: The operators by id, upstream first.
        edges: The edges between them.
    """

    title: str
    rules: str
    operators: Mapping[int, OperatorChannels]
    edges: tuple[EdgeChannels, ...]

    @property
    def chains(self) -> dict[int, list[OperatorChannels]]:
        """The operators that share a subtask and are linked in the diagram, by the id of the first, upstream first."""
        above = {edge.edge.target: edge.edge.source for edge in self.edges if edge.edge.chained}
        first: dict[int, int] = {}
        members: dict[int, list[OperatorChannels]] = {}
        for number, one in self.operators.items():
            first[number] = first[above[number]] if number in above else number
            members.setdefault(first[number], []).append(one)
        return members

    @property
    def legend(self) -> dict[Mark | None, str]:
        """The meaning of the lines that the diagram has. None: the mark of channels that are blocked."""
        marks = {channel.mark for edge in self.edges for channel in edge.channels}
        it = "the watermark" if self.rules else "watermarks"
        texts = {
            Mark.CARRIES: f"carries {it}",
            Mark.OF_KEY: "carries a watermark about one key, if subtask 0 has the key",
            Mark.OF_OTHER_KEYS: "carries watermarks about keys of other subtasks",
            Mark.BARE: f"does not carry {it}",
        }
        found: dict[Mark | None, str] = {mark: text for mark, text in texts.items() if mark in marks}
        if any(edge.blocked for edge in self.edges):
            found[None] = "blocked after its watermark until other channels have sent theirs"
        return found


def shown_subtasks(parallelism: int) -> tuple[tuple[int, ...], int]:
    """The subtasks that are drawn, and the number of those left out between the last two of them.

    All subtasks of up to three, otherwise the first two and the last one.
    """
    if parallelism <= _MOST:
        return tuple(range(parallelism)), 0
    return (0, 1, parallelism - 1), parallelism - _MOST


def channels_of(view: PlanView, watermark: str | None, operator: str | None) -> ChannelsView:
    """Return the channels of a plan, without those of sinks, which ignore watermarks.

    Args:
        view: The plan.
        watermark: The identifier of the watermark. Only channels at operators that it can reach are included. None: all
            watermarks and channels.
        operator: Only channels into the operator with this uid or name. None: into all.

    Raises:
        ConfigurationError: The plan has no such watermark or operator, or cannot be built.
    """
    if view.error is not None:
        raise ConfigurationError(f"The pipeline has no channels, because it cannot be built. {view.error}")
    watermarks = view.watermarks if watermark is None else (_watermark(view, watermark),)
    edges = [edge for edge in view.edges if view.operators[edge.target].kind is not OperatorKind.SINK]
    ids = {one.id for one in view.operators if one.kind is not OperatorKind.SINK}
    if watermark is not None:
        near = {*watermarks[0].declared_by, *watermarks[0].received_by}
        drawn = [edge for edge in edges if edge.source in near or edge.target in watermarks[0].received_by]
        ids = near | {end for edge in drawn for end in (edge.source, edge.target)}
        edges = [edge for edge in edges if ids.issuperset((edge.source, edge.target))]
    if operator is not None:
        target = _operator(view, operator, ids)
        edges = [edge for edge in edges if edge.target == target.id]
        ids = {target.id, *(edge.source for edge in edges)}
    shown = [view.operators[number] for number in sorted(ids)]
    names = ", ".join(watermark_name(one.identifier) for one in watermarks) if watermark is not None else ""
    into = "" if operator is None else f" into {operator}"
    return ChannelsView(
        title=printable(f"{view.job_name}: channels{into}{f' of {names}' if names else ''}"),
        rules=printable(watermark_rules(watermarks[0])) if watermark is not None else "",
        operators={
            one.id: OperatorChannels(one, tuple(_roles(view, one, watermarks, of_one=watermark is not None)))
            for one in shown
        },
        edges=tuple(_edge(view, edge, watermarks) for edge in edges),
    )


def _watermark(view: PlanView, name: str) -> WatermarkView:
    for one in view.watermarks:
        if name in (one.identifier, watermark_name(one.identifier)):
            return one
    known = ", ".join(repr(watermark_name(one.identifier)) for one in view.watermarks) or "none"
    raise ConfigurationError(f"The job {view.job_name!r} declares no watermark {name!r}. Its watermarks: {known}.")


def _operator(view: PlanView, name: str, ids: set[int]) -> OperatorView:
    candidates = [view.operators[number] for number in sorted(ids)]
    for operator in candidates:
        if name in (operator.title, operator.uid):
            return operator
    known = ", ".join(repr(operator.title) for operator in candidates) or "none"
    raise ConfigurationError(f"There is no operator {name!r} among those of these channels: {known}.")


def _roles(
    view: PlanView, operator: OperatorView, watermarks: Sequence[WatermarkView], *, of_one: bool
) -> Iterator[str]:
    for watermark in watermarks:
        roles = map(printable, roles_of(view, operator, watermark))
        if of_one:
            yield from roles
        else:
            yield from (f"{printable(watermark_name(watermark.identifier))}: {role}" for role in roles)


def _edge(view: PlanView, edge: EdgeView, watermarks: Sequence[WatermarkView]) -> EdgeChannels:
    carried = [watermark for watermark in watermarks if watermark.identifier in edge.carries]
    mark = Mark.CARRIES if carried else Mark.BARE
    if carried and edge.exchange is Exchange.HASH and all(watermark.key_type for watermark in carried):
        mark = Mark.OF_KEY
    return EdgeChannels(
        edge=edge,
        exchange=exchange_text(edge),
        carried=tuple(printable(watermark_name(watermark.identifier)) for watermark in carried),
        blocked=any(is_blocked(view, edge, watermark) for watermark in watermarks),
        channels=tuple(_channels(view, edge, mark)),
    )


def _channels(view: PlanView, edge: EdgeView, mark: Mark) -> Iterator[Channel]:
    sources, _ = shown_subtasks(view.operators[edge.source].parallelism)
    targets, _ = shown_subtasks(view.operators[edge.target].parallelism)
    for source in sources:
        for target in targets:
            if edge.exchange is not Exchange.FORWARD or source == target:
                other = mark is Mark.OF_KEY and target != 0
                yield Channel(source, target, Mark.OF_OTHER_KEYS if other else mark)
