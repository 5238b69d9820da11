"""Examples of Hypothesis and values of parameters that run only with ``--all``.

``./run test`` uses Hypothesis' profile ``ci``, which tries the same examples in every run. ``./run test --all`` uses
``nightly``, which tries many more, and new ones each time. Neither limits the time of an example, or that to generate
one, because times depend on the load of the machine. Failures of ``nightly`` stay in Hypothesis' database until they
pass.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

CI, NIGHTLY = "ci", "nightly"
_EXAMPLES, _FACTOR = 50, 20
_TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile(CI, _TIMELESS, max_examples=_EXAMPLES, derandomize=True)
settings.register_profile(NIGHTLY, _TIMELESS, max_examples=_EXAMPLES * _FACTOR)


def factor() -> int:
    """Return the number of examples in the current profile, as a multiple of that in ``ci``."""
    return settings().max_examples // _EXAMPLES


def examples(number: int) -> settings:
    """Settings for a test that tries ``number`` examples in ``ci`` instead of 50."""
    return settings(max_examples=number * factor())


def nightly(*values: object) -> list[Any]:
    """Values of a parameter that run with ``--all`` only."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
