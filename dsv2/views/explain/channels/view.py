"""Builds the channels of a plan from its view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv2.base.printable import printable
from dsv2.errors import ConfigurationError
from dsv2.graph import Exchange, OperatorKind
from dsv2.plan_view.model import EdgeView, OperatorView, PlanView, WatermarkView
from dsv2.views.explain.channels.model import (
    Channel,
    ChannelsView,
    EdgeChannels,
    Mark,
    OperatorChannels,
    shown_subtasks,
)
from dsv2.views.explain.channels.roles import is_blocked, roles_of
from dsv2.views.explain.wording import exchange_text, watermark_name, watermark_rules


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
