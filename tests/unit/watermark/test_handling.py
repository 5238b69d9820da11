"""PEEK or POLL combined with FORWARD or IGNORE: in one of four cases the framework forwards a watermark."""

from __future__ import annotations

import pytest

from dsv2.watermark import WatermarkHandlingResult, WatermarkHandlingStrategy
from dsv2.watermark.handling import is_forwarded


@pytest.mark.parametrize(
    ("answered", "strategy", "forwarded"),
    [
        ("PEEK", "FORWARD", True),
        ("PEEK", "IGNORE", False),
        ("POLL", "FORWARD", False),
        ("POLL", "IGNORE", False),
    ],
)
def test_when_the_framework_forwards(answered: str, strategy: str, forwarded: bool) -> None:
    assert is_forwarded(WatermarkHandlingResult[answered], WatermarkHandlingStrategy[strategy]) is forwarded


def test_table_is_complete() -> None:
    """A new result or strategy needs a decision of its own."""
    assert {result.name for result in WatermarkHandlingResult} == {"PEEK", "POLL"}
    assert {strategy.name for strategy in WatermarkHandlingStrategy} == {"FORWARD", "IGNORE"}
