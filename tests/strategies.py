"""Strategies of Hypothesis that several tests share.

Not in ``tests/support.py``, because Python processes of Spark import that, and importing Hypothesis takes long.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def long_lists(elements: SearchStrategy[T], max_size: int) -> SearchStrategy[list[T]]:
    """Lists of up to ``max_size`` elements. Hypothesis alone draws about five elements, which is too short for a
    history."""
    return st.lists(elements, max_size=max_size // 4) | st.lists(elements, min_size=max_size // 3, max_size=max_size)
