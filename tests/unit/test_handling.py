"""PEEK/POLL against FORWARD/IGNORE: one cell of four lets the framework send a watermark on."""

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
def test_who_sends_it_on(answered: str, strategy: str, forwarded: bool) -> None:
    assert is_forwarded(WatermarkHandlingResult[answered], WatermarkHandlingStrategy[strategy]) is forwarded


def test_the_table_has_no_other_cells() -> None:
    """A new result or strategy needs a decision of its own."""
    assert {result.name for result in WatermarkHandlingResult} == {"PEEK", "POLL"}
    assert {strategy.name for strategy in WatermarkHandlingStrategy} == {"FORWARD", "IGNORE"}
