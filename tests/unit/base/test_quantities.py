"""Durations in texts for people."""

from __future__ import annotations

import pytest

from dsv2.base.quantities import duration_text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (999, "999 ms"),
        (1000, "1 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (3_725_000, "1 h 2 min"),
        (86_405_000, "1 d"),
        (93_784_000, "1 d 2 h"),
    ],
)
def test_duration_has_its_two_largest_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
