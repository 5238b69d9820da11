"""The view of a plan by its runtime: its additions to the plan, its settings and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dsv2.base.folders import Folder
from dsv2.graph import Plan


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about how a runtime would run a plan, such as ``tasks per level``: 4."""

    name: str
    value: int | str


@dataclass(frozen=True, slots=True)
class RuntimeView:
    """A runtime's view of a plan.

    Attributes:
        name: The name of the runtime.
        one_process: Whether everything runs in one process, so that records never leave it.
        facts: What it adds to the plan.
        refusal: Why it would refuse the plan, or None.
    """

    name: str
    one_process: bool
    facts: tuple[Fact, ...] = ()
    refusal: str | None = None


@runtime_checkable
class ExplainingRuntime(Protocol):
    """A ``JobRuntime`` that adds to the explanation of a plan. Optional."""

    def runtime_view(self, plan: Plan, /) -> RuntimeView:
        """Return how this runtime would run ``plan``, without running anything."""


@runtime_checkable
class ObservableRuntime(Protocol):
    """A ``JobRuntime`` that tells dashboards about its settings and files. Optional."""

    def configuration(self) -> Mapping[str, str]:
        """Return its settings, such as those of the Spark session. The dashboard hides secrets among them."""

    def open_folder(self, path: str) -> Folder:
        """Open a folder on any file system that the runtime can reach."""
