"""The client libraries that connectors need, and dsv2 itself does not."""

from __future__ import annotations

from importlib.util import find_spec

from dsv2.errors import ConfigurationError

__all__ = ("require_client_library",)


def require_client_library(module: str, extra: str, user: str) -> None:
    """Called when a connector is made, before anything imports ``module``.

    Raises ``ConfigurationError`` that names ``user``, who needs it, and the ``extra`` that installs it.
    """
    if find_spec(module) is None:
        raise ConfigurationError(f'{user} needs {module}, which is not installed: pip install "dsv2[{extra}]".')
