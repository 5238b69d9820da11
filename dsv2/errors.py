"""The exceptions and warnings of dsv2.

::

    Dsv2Error
    ├── PlanError                    the program is invalid; raised while it is built, before anything runs
    │   ├── WatermarkDeclarationError    conflicting or invalid watermark declarations
    │   ├── StateDeclarationError        conflicting or invalid state declarations
    │   ├── IllegalRedistributionModeError   the stream does not support the mode of a state
    │   ├── ConfigurationError           an invalid uid, name, parallelism, trigger or option
    │   │   └── MissingLibraryError          a library of an extra of dsv2 is not installed; also an ImportError
    │   ├── SchemaError                  record type and table schema do not match
    │   └── SerializationError           a function, selector or value cannot be serialized
    ├── JobError                     the job failed while it ran
    │   ├── UserFunctionError            a callback of a process function raised an exception
    │   └── WorkerLostError              a worker process of the local runtime has ended
    ├── ContractError                a callback violated the API contract; wrapped in UserFunctionError
    │   ├── UndeclaredWatermarkError     emitted a watermark identifier that nothing in the job declares
    │   ├── InvalidWatermarkError        a watermark value does not have the declared type
    │   ├── UndeclaredStateError         requested a state that the function does not declare
    │   ├── UndeclaredOutputError        emitted to a side output that the function does not declare
    │   ├── InvalidKeyError              None, unhashable or unsupported key; output key differs from input key
    │   └── RecordMutatedError           a record was modified after it was emitted
    ├── ResourceError                a resource of the job cannot be opened
    ├── IncompatibleCheckpointError  the program cannot continue from the checkpoint or savepoint
    ├── CorruptDataError             bytes of a checkpoint, savepoint or frame are damaged or of unknown origin
    └── InternalError                a bug in dsv2; please report it

    Dsv2Warning
    ├── MissingUidWarning            an operator with state has no user-defined uid
    ├── DroppedStateWarning          the checkpoint has state that the program does not use
    ├── PlanWarning                  the plan shows a mistake: the job would hang, lose records or do nothing useful
    │   └── UnreadStreamWarning          no operator reads a stream of the pipeline
    ├── RecordNotSkippedWarning      a run has not come across a record that it was to skip
    └── UnfinishedJobWarning         the program ended while a job ran, or did not check its result
"""

from __future__ import annotations

from typing import Any

from dsv2.base.printable import printable_lines
from dsv2.base.record_position import RecordPosition

__all__ = (
    "ConfigurationError",
    "ContractError",
    "CorruptDataError",
    "DroppedStateWarning",
    "Dsv2Error",
    "Dsv2Warning",
    "IllegalRedistributionModeError",
    "IncompatibleCheckpointError",
    "InternalError",
    "InvalidKeyError",
    "InvalidWatermarkError",
    "JobError",
    "MissingLibraryError",
    "MissingUidWarning",
    "PlanError",
    "PlanWarning",
    "RecordMutatedError",
    "RecordNotSkippedWarning",
    "ResourceError",
    "SchemaError",
    "SerializationError",
    "StateDeclarationError",
    "UndeclaredOutputError",
    "UndeclaredStateError",
    "UndeclaredWatermarkError",
    "UnfinishedJobWarning",
    "UnreadStreamWarning",
    "UserFunctionError",
    "WatermarkDeclarationError",
    "WorkerLostError",
)


class Dsv2Error(Exception):
    """Base class of all exceptions of dsv2. Their texts have escapes for control characters of records."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class PlanError(Dsv2Error):
    """The program is invalid. Raised while the pipeline is built or checked."""


class WatermarkDeclarationError(PlanError):
    """Two declarations of one identifier differ, or a declaration contradicts itself."""


class StateDeclarationError(PlanError):
    """Two declarations of one state differ, or a declaration contradicts itself."""


class IllegalRedistributionModeError(PlanError):
    """A function declares a state whose redistribution mode its stream does not support."""


class ConfigurationError(PlanError):
    """A uid, name, parallelism, mode, trigger or option has an invalid value."""


class MissingLibraryError(ConfigurationError, ImportError):
    """An optional library is not installed. The message names the extra of dsv2 that installs it."""


class SchemaError(PlanError):
    """A record type and a table schema do not match."""


class SerializationError(PlanError):
    """A function, selector, field or record cannot be serialized."""


class JobError(Dsv2Error):
    """A job failed while it ran. For a failure in a callback see ``UserFunctionError``."""


class WorkerLostError(JobError):
    """A worker process of the local runtime has ended, for example because memory ran out."""


class UserFunctionError(JobError):
    """A callback of a process function raised an exception.

    Raised by ``execute``, and returned by ``JobHandle.exception``, on every runtime.

    Attributes:
        operator: The uid and name of the operator.
        callback: The method that raised.
        subtask: The index of the subtask.
        location: The user's file and line that created the operator.
        cause_type: The class name of the original exception.
        cause_message: The message of the original exception.
        key: The current key, shortened, or None.
        record: The current record, shortened, or None.
        window: The bounds of the window, if a callback of a window failed, or None.
        traceback_text: The user's frames in the traceback of the original exception.
        position: Where the record is in its source, or None if this is not known.
        ways_out: How the job can continue, or an empty string.
        exceeds_limit: Whether the error policy covers the exception, and a limit of the policy is exceeded.
        cause: The original exception on the local runtime and in test harnesses. None on Spark and in worker
            processes, because callbacks run in other processes there.
    """

    def __init__(
        self,
        *,
        operator: str,
        callback: str,
        subtask: int,
        location: str,
        cause_type: str,
        cause_message: str,
        key: str | None = None,
        record: str | None = None,
        window: str | None = None,
        traceback_text: str = "",
        position: RecordPosition | None = None,
        ways_out: str = "",
        exceeds_limit: bool = False,
    ) -> None:
        self.operator = operator
        self.callback = callback
        self.subtask = subtask
        self.location = location
        self.cause_type = cause_type
        self.cause_message = cause_message
        self.key = key
        self.record = record
        self.window = window
        self.traceback_text = traceback_text
        self.position = position
        self.ways_out = ways_out
        self.exceeds_limit = exceeds_limit
        self.cause: BaseException | None = None
        self.failed: tuple[Any, Any] | None = None  # the record and the key, in the process where it was raised
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [
            f"{self.cause_type}: {self.cause_message}",
            f"  operator: {self.operator} (subtask {self.subtask}), defined at {self.location}",
            f"  callback: {self.callback}",
        ]
        if self.key is not None:
            lines.append(f"  key:      {self.key}")
        if self.window is not None:
            lines.append(f"  window:   {self.window}")
        if self.record is not None:
            lines.append(f"  record:   {self.record}")
        if self.position is not None:
            lines.append(f"  position: {self.position}")
        if self.traceback_text:
            lines.append(self.traceback_text.rstrip())
        if self.ways_out:
            lines.append(self.ways_out)
        return "\n".join(lines)

    def beyond_limit(self, explanation: str) -> UserFunctionError:
        """Return the error as one that exceeds a limit of the error policy, which the explanation names."""
        return self._with(cause_message=f"{self.cause_message} ({explanation})", exceeds_limit=True)

    def at(self, position: RecordPosition) -> UserFunctionError:
        """Return the error of the record at ``position``."""
        return self._with(position=position)

    def with_remedies(self, ways_out: str) -> UserFunctionError:
        """Return the error with the ways to continue the job."""
        return self._with(ways_out=ways_out)

    def _with(self, **changes: Any) -> UserFunctionError:
        changed = UserFunctionError(**self._fields() | changes)
        changed.cause, changed.failed = self.cause, self.failed
        return changed

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON values, for sending the error between processes."""
        position = self.position
        return self._fields() | {"position": position and (position.source, position.split, position.offset)}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> UserFunctionError:
        """Create the error from the result of ``as_json``."""
        position = fields["position"]
        return UserFunctionError(**fields | {"position": position and RecordPosition(*position)})

    def _fields(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "callback": self.callback,
            "subtask": self.subtask,
            "location": self.location,
            "cause_type": self.cause_type,
            "cause_message": self.cause_message,
            "key": self.key,
            "record": self.record,
            "window": self.window,
            "traceback_text": self.traceback_text,
            "position": self.position,
            "ways_out": self.ways_out,
            "exceeds_limit": self.exceeds_limit,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return UserFunctionError.from_json, (self.as_json(),)


class ResourceError(Dsv2Error):
    """A ``Resource`` cannot be opened: its ``open`` raised the exception that is the cause."""


class ContractError(Dsv2Error):
    """A callback violated the contract of the API."""


class UndeclaredWatermarkError(ContractError):
    """A function emitted a watermark whose identifier no function or source of the job declares."""


class InvalidWatermarkError(ContractError):
    """``new_watermark`` got a value that does not have the declared type, or does not fit 64 bits."""


class UndeclaredStateError(ContractError):
    """A function requested a state that it does not return from ``uses_states``."""


class UndeclaredOutputError(ContractError):
    """A function emitted to a side output that it does not return from ``declare_outputs``."""


class InvalidKeyError(ContractError):
    """A key is None, unhashable or of an unsupported type, or an output key differs from the current key."""


class RecordMutatedError(ContractError):
    """A record was modified after it was emitted. Only the local runtime checks this."""


class IncompatibleCheckpointError(Dsv2Error):
    """The program cannot continue from the checkpoint or savepoint. The message lists every incompatible change."""


class CorruptDataError(Dsv2Error):
    """Bytes of a checkpoint, savepoint or frame are damaged, have another version, or refer to unknown classes."""


class InternalError(Dsv2Error):
    """A bug in dsv2. Please report it with the traceback."""


class Dsv2Warning(UserWarning):
    """Base class of all warnings of dsv2. Their texts have escapes for control characters of records."""

    def __str__(self) -> str:
        return printable_lines(super().__str__())


class MissingUidWarning(Dsv2Warning):
    """A stateful operator of a job with a checkpoint has no user-defined uid."""


class DroppedStateWarning(Dsv2Warning):
    """The checkpoint or savepoint has operators, states or function fields that the program does not use."""


class PlanWarning(Dsv2Warning):
    """The plan shows a mistake, which ``explain`` lists as a warning: the job would hang, lose records or do nothing
    useful."""


class UnreadStreamWarning(PlanWarning):
    """No operator reads a stream of the pipeline, so its records are lost."""


class RecordNotSkippedWarning(Dsv2Warning):
    """A run has not skipped a record of ``skip_records``: it was read before, or has not been read."""


class UnfinishedJobWarning(Dsv2Warning):
    """The program ended while a job was running, or without checking the result of a job that failed."""
