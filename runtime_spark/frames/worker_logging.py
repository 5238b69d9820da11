"""Configures the standard module ``logging`` in Spark's Python workers."""

from __future__ import annotations

import logging.config
from collections.abc import Mapping
from typing import Any

from dsv2.errors import ConfigurationError


def check_logging(config: Mapping[str, Any]) -> dict[str, Any]:
    """Check the configuration on the driver, without applying it, and return a copy.

    Raises:
        ConfigurationError: It is not a configuration for ``logging.config.dictConfig``.
    """
    if not isinstance(config, Mapping) or config.get("version") != 1:
        raise ConfigurationError(
            f"worker_logging must be a mapping for logging.config.dictConfig, with the key 'version' and the value 1, "
            f"not {config!r}."
        )
    return dict(config)


def configure_logging(config: Mapping[str, Any]) -> None:
    """Apply ``config`` to this process. Loggers that modules have already created remain enabled."""
    logging.config.dictConfig({"disable_existing_loggers": False, **config})
