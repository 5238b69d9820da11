"""The model of the channels of a plan, which its renderers draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dsv2.plan_view.model import EdgeView, OperatorView

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
