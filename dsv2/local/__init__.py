"""The local runtime: it runs a plan in one process, for tests and experiments, and as the reference."""

from dsv2.jobs.handle import JobRuntime
from dsv2.local.restarts import RestartPolicy
from dsv2.local.runtime import LocalRuntime

__all__ = ("LocalRuntime", "RestartPolicy", "create")


def create(*, checks: bool = True) -> JobRuntime:
    """Create the runtime for ``get_instance(runtime="local")``.

    Args:
        checks: See ``LocalRuntime``.
    """
    return LocalRuntime(checks=checks)
