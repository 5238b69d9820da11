"""The local runtime: it runs a plan in one process, for tests and experiments, and as the reference."""

from dsv2.jobs.handle import JobRuntime
from dsv2.local.runtime import LocalRuntime

__all__ = ("LocalRuntime", "create")


def create(*, fast: bool = False) -> JobRuntime:
    """Create the runtime for ``get_instance(runtime="local")``.

    Args:
        fast: See ``LocalRuntime``.
    """
    return LocalRuntime(fast=fast)
