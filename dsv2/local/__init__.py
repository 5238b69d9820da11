"""Runs a plan in one process, on the same subtasks as every runtime: for tests, for trying out, as the reference."""

from dsv2.job import JobRuntime
from dsv2.local.runtime import LocalRuntime

__all__ = ("LocalRuntime", "create")


def create(*, fast: bool = False) -> JobRuntime:
    """The runtime behind ``get_instance(runtime="local")``."""
    return LocalRuntime(fast=fast)
