"""Examples of Hypothesis and values of parameters that run only with ``--all``.

``./run test`` uses Hypothesis' profile ``ci``, which tries the same examples in every run. ``./run test --all`` uses
``nightly``, which tries many more, and new ones each time. Neither has a deadline for an example, because a deadline
depends on the load of the machine. Failures of ``nightly`` stay in Hypothesis' database until they pass.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

CI, NIGHTLY = "ci", "nightly"
_EXAMPLES, _FACTOR = 50, 20

settings.register_profile(CI, max_examples=_EXAMPLES, deadline=None, derandomize=True)
settings.register_profile(NIGHTLY, max_examples=_EXAMPLES * _FACTOR, deadline=None)


def factor() -> int:
    """Return the number of examples in the current profile, as a multiple of that in ``ci``."""
    return settings().max_examples // _EXAMPLES


def examples(number: int) -> settings:
    """Settings for a test that tries ``number`` examples in ``ci`` instead of 50."""
    return settings(max_examples=number * factor())


def nightly(*values: object) -> list[Any]:
    """Values of a parameter that run with ``--all`` only."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
