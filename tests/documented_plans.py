"""The diagrams of plans and of channels in the documentation. ``python -m tests.documented_plans`` draws them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dsv2 import ExecutionEnvironment
from dsv2.sinks import CollectSink
from dsv2.views.explain import ChannelDiagram, Explanation, explain
from examples import end_of_day
from examples.hot_topics import pipeline
from examples.model_switching import score, some_requests
from tests import ROOT
from tests import documented_channels as channels
from tests.explained_program import recorded


def _hot_topics() -> Explanation:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    pipeline(env)
    return explain(env.build_plan("hot topics"))


def _end_of_day() -> Explanation:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    end_of_day.pipeline(env).to_sink(CollectSink[end_of_day.DayReport]())
    return explain(env.build_plan("end of day"))


def _model_switching() -> Explanation:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    requests = env.from_collection(some_requests(), "requests").with_parallelism(1)
    score(requests).to_sink(CollectSink())
    return explain(env.build_plan("model switching"))


DIAGRAMS: Mapping[str, Callable[[], Explanation | ChannelDiagram]] = {
    "docs/assets/channels_backlog.svg": lambda: channels.combined().channels("backlog"),
    "docs/assets/channels_closed_day.svg": lambda: channels.addressed().channels("closed-day"),
    "docs/assets/channels_complete.svg": lambda: channels.per_key().channels("complete"),
    "docs/assets/channels_end_of_day.svg": lambda: _end_of_day().channels("end-of-day"),
    "docs/assets/channels_orders.svg": lambda: recorded().channels("stock-full"),
    "docs/assets/plan_hot_topics.svg": _hot_topics,
    "docs/assets/plan_model_switching.svg": _model_switching,
    "docs/assets/plan_orders.svg": recorded,
}
"""Explanations by the path of the diagram."""


def draw(path: str) -> str:
    """The current diagram. The root of the repository must be the current directory, to which places are relative."""
    return DIAGRAMS[path]().render("svg")


if __name__ == "__main__":
    os.chdir(ROOT)
    from tests import documented_plans  # the classes of plans have the names of their modules

    for path in DIAGRAMS:
        Path(path).write_text(documented_plans.draw(path), encoding="utf-8")
