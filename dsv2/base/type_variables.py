"""The type variables of generic classes and functions, except those with a bound or a default.

``T`` is any type, ``K`` a key, ``V`` a value, ``R`` a result and ``ACC`` an accumulator. ``IN`` and ``OUT`` are what
a function receives and emits. ``_co`` and ``_contra`` mark the variance.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
ACC = TypeVar("ACC")

IN = TypeVar("IN")
IN_contra = TypeVar("IN_contra", contravariant=True)
IN1 = TypeVar("IN1")
IN1_contra = TypeVar("IN1_contra", contravariant=True)
IN2 = TypeVar("IN2")
IN2_contra = TypeVar("IN2_contra", contravariant=True)

OUT = TypeVar("OUT")
OUT_co = TypeVar("OUT_co", covariant=True)
OUT_contra = TypeVar("OUT_contra", contravariant=True)
OUT1 = TypeVar("OUT1")
OUT1_co = TypeVar("OUT1_co", covariant=True)
OUT1_contra = TypeVar("OUT1_contra", contravariant=True)
OUT2 = TypeVar("OUT2")
OUT2_co = TypeVar("OUT2_co", covariant=True)
OUT2_contra = TypeVar("OUT2_contra", contravariant=True)
