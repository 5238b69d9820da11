"""Every exception that dsv2 raises, in one tree.

::

    Dsv2Error
    ├── PlanError                    the program is wrong; raised while it is built, before anything runs
    │   ├── WatermarkDeclarationError    conflicting or unusable watermark declarations
    │   ├── StateDeclarationError        conflicting or unusable state declarations
    │   ├── IllegalRedistributionModeError   a state of a mode that the stream does not have
    │   ├── ConfigurationError           a uid, name, parallelism or trigger that cannot be used
    │   ├── SchemaError                  record type and table schema do not fit
    │   └── SerializationError           a function, selector or value that cannot be turned into bytes
    ├── JobError                     the job ran and failed
    │   └── UserFunctionError            a callback of a process function raised
    ├── ContractError                a callback broke a rule; reaches the user wrapped in UserFunctionError
    │   ├── UndeclaredWatermarkError     emitted an identifier that nothing in the job declares
    │   ├── InvalidWatermarkError        a watermark value of another type than the declaration says
    │   ├── UndeclaredStateError         asked for a state that the function does not declare
    │   ├── InvalidKeyError              None, unhashable or unsupported key; output key differs from input key
    │   └── RecordMutatedError           a record was changed after it had been emitted
    ├── IncompatibleCheckpointError  the checkpoint belongs to another version of the program
    ├── CorruptDataError             bytes of a checkpoint or a frame are damaged or not ours
    └── InternalError                a bug in dsv2: please report it

    Dsv2Warning
    ├── MissingUidWarning            an operator keeps state and has no uid of the user's
    ├── DroppedStateWarning          the checkpoint holds state that the program does not ask for
    ├── UnreadStreamWarning          nothing reads a stream of the pipeline
    └── UnfinishedJobWarning         the program ended while a job was running, or without asking how it ended
"""

from __future__ import annotations

from typing import Any

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
    "MissingUidWarning",
    "PlanError",
    "RecordMutatedError",
    "SchemaError",
    "SerializationError",
    "StateDeclarationError",
    "UndeclaredStateError",
    "UndeclaredWatermarkError",
    "UnfinishedJobWarning",
    "UnreadStreamWarning",
    "UserFunctionError",
    "WatermarkDeclarationError",
)


class Dsv2Error(Exception):
    """Root of everything that dsv2 raises on purpose."""


class PlanError(Dsv2Error):
    """The program cannot be run as written; raised while the pipeline is built or checked."""


class WatermarkDeclarationError(PlanError):
    """Two declarations of one identifier differ, or a declaration contradicts itself."""


class StateDeclarationError(PlanError):
    """Two declarations of one state differ, or a declaration contradicts itself."""


class IllegalRedistributionModeError(PlanError):
    """A function declares a state whose redistribution mode its stream does not allow."""


class ConfigurationError(PlanError):
    """A uid, name, parallelism, mode, trigger or option has a value that cannot be used."""


class SchemaError(PlanError):
    """A record type and a table schema do not fit each other."""


class SerializationError(PlanError):
    """A function, a selector, a field or a record cannot be turned into bytes."""


class JobError(Dsv2Error):
    """A job failed while it ran, for a reason outside of the user's callbacks."""


class UserFunctionError(JobError):
    """A callback of a process function raised; says where, and on what.

    Raised from ``execute`` (or held by the job handle) on every runtime. ``traceback_text`` has the user's frames of
    the original exception. On the local runtime and in test harnesses ``cause`` is that exception; on Spark, which runs
    callbacks in other processes, it is None.
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
        traceback_text: str = "",
    ) -> None:
        self.operator = operator
        self.callback = callback
        self.subtask = subtask
        self.location = location
        self.cause_type = cause_type
        self.cause_message = cause_message
        self.key = key
        self.record = record
        self.traceback_text = traceback_text
        self.cause: BaseException | None = None
        super().__init__(self._text())

    def _text(self) -> str:
        lines = [
            f"{self.cause_type}: {self.cause_message}",
            f"  operator: {self.operator} (subtask {self.subtask}), defined at {self.location}",
            f"  callback: {self.callback}",
        ]
        if self.key is not None:
            lines.append(f"  key:      {self.key}")
        if self.record is not None:
            lines.append(f"  record:   {self.record}")
        if self.traceback_text:
            lines.append(self.traceback_text.rstrip())
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The fields as plain JSON values, to carry the error between processes."""
        return {
            "operator": self.operator,
            "callback": self.callback,
            "subtask": self.subtask,
            "location": self.location,
            "cause_type": self.cause_type,
            "cause_message": self.cause_message,
            "key": self.key,
            "record": self.record,
            "traceback_text": self.traceback_text,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_user_function_error, (self.as_json(),)


def _rebuild_user_function_error(fields: dict[str, Any]) -> UserFunctionError:
    return UserFunctionError(**fields)


class ContractError(Dsv2Error):
    """A callback used the API in a way that its contract forbids."""


class UndeclaredWatermarkError(ContractError):
    """A watermark was emitted whose identifier no function and no source of the job declares."""


class InvalidWatermarkError(ContractError):
    """``new_watermark`` got a value of another type than the watermark is declared with, or one beyond 64 bits."""


class UndeclaredStateError(ContractError):
    """A function asked for a state that it does not return from ``uses_states``."""


class InvalidKeyError(ContractError):
    """A key is None, unhashable or of an unsupported type, or an output key differs from the current key."""


class RecordMutatedError(ContractError):
    """A record was changed after it had been emitted (found by the local runtime's check)."""


class IncompatibleCheckpointError(Dsv2Error):
    """The checkpoint was written by a program that this one cannot continue; names every difference."""


class CorruptDataError(Dsv2Error):
    """Bytes of a checkpoint or frame are damaged, of another version, or name classes the job does not have."""


class InternalError(Dsv2Error):
    """dsv2 broke one of its own rules. This is a bug: please report it with the traceback."""


class Dsv2Warning(UserWarning):
    """Root of all warnings of dsv2."""


class MissingUidWarning(Dsv2Warning):
    """An operator of a job with a checkpoint keeps state, and the program gives it no uid."""


class DroppedStateWarning(Dsv2Warning):
    """The checkpoint holds states or function fields that the program does not ask for."""


class UnreadStreamWarning(Dsv2Warning):
    """Nothing reads a stream of the pipeline, so what it carries is lost."""


class UnfinishedJobWarning(Dsv2Warning):
    """The program ended while a job that it had started was running, or without asking how the job ended."""
