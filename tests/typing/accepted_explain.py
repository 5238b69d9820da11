"""Explanations of plans and channels."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from dsv2 import ExecutionEnvironment
from dsv2.views.explain import ChannelDiagram, ChannelFormat, Explanation


def channels(env: ExecutionEnvironment, folder: Path, format: ChannelFormat) -> None:
    assert_type(env.explain(), Explanation)
    assert_type(env.explain().channels(), ChannelDiagram)
    diagram = env.explain().channels("end-of-day", operator="totals")
    assert_type(diagram.render("svg"), str)
    diagram.render(format)
    diagram.save(folder / "channels.svg")
