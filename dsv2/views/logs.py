"""Log records of jobs: the fields ``job``, ``operator`` and ``subtask``, and a formatter for JSON.

dsv2 logs below the logger ``dsv2``. Your functions log with any logger of the standard module ``logging``.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

from dsv2.base.log_scope import current_scope
from dsv2.base.printable import printable_json

__all__ = ("JobFilter", "JsonFormatter")

_FIELDS: Final = ("job", "operator", "subtask")
_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "asctime", "message", "taskName"}  # taskName: since Python 3.12
)


class JobFilter(logging.Filter):
    """Adds the attributes ``job``, ``operator`` (its uid) and ``subtask`` to log records. Add it to handlers.

    It is called where a record is logged, so add it to a ``QueueHandler``, and not to the handlers behind its queue.
    The attributes are None outside of jobs. It discards nothing. Fields of the call, ``extra={"job": ...}``, remain.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by the handler."""
        scope = current_scope()
        for name in _FIELDS:
            if not hasattr(record, name):
                setattr(record, name, getattr(scope, name))
        return True


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line.

    Its fields are ``time`` (ISO 8601 in UTC), ``level``, ``logger``, ``message``, the attributes of ``JobFilter``, the
    ``extra`` fields of the call, and ``exception`` and ``stack`` if there are any.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Called by the handler."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD | fields.keys()}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return printable_json(json.dumps(fields, default=str, ensure_ascii=False))
