"""The local runtime: it runs a plan on one machine, in one process or several."""

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
