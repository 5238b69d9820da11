"""Checks for optional libraries, such as the clients of connectors."""

from __future__ import annotations

from importlib.util import find_spec

from dsv2.errors import MissingLibraryError


def require_client_library(module: str, extra: str, user: str) -> None:
    """Check that ``module`` is installed. Connectors call it when they are created, before they import ``module``.

    Args:
        module: The module to look for.
        extra: The extra of dsv2 that installs it.
        user: The class or function that requires it, for the message.

    Raises:
        MissingLibraryError: ``module`` is not installed.
    """
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the package that contains it
        found = None
    if found is None:
        raise MissingLibraryError(
            f'{user} requires {module}, which is not installed. Install it: pip install "dsv2[{extra}]".'
        )
