"""The classes that a job brings: the only ones, besides plain built-in types, that decoded bytes may name.

They are found while the job's functions are pickled for the trip to the workers, which is also when a function that
cannot make that trip is reported.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterable, Iterator, Sized
from enum import Enum
from importlib import import_module
from types import FunctionType
from typing import Any

import cloudpickle

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.functions import ColumnarFunction, ProcessFunction, WrappingFunction
from dsv2.graph import Operator, Plan
from dsv2.sinks import Sink
from dsv2.sources import CollectionSource, DataFrameSource, IndexedSource, Source
from dsv2.state.types import classes_in

__all__ = ("TypeRegistry",)

_PLAIN = {
    "builtins": [
        *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset"),
        *("int", "list", "object", "range", "set", "slice", "str", "tuple"),
    ],
    "collections": ["Counter", "OrderedDict", "defaultdict", "deque"],
    "datetime": ["date", "datetime", "time", "timedelta", "timezone"],
    "decimal": ["Decimal"],
    "fractions": ["Fraction"],
    "dsv2.arrow.records": ["_records", "_whole_numbers"],
    "pyarrow.lib": [  # tables, in fields of functions
        *("_reconstruct_table", "_reconstruct_record_batch", "_restore_array", "chunked_array", "py_buffer"),
        *("schema", "field", "type_for_alias", "decimal128", "dictionary", "list_", "struct", "timestamp"),
    ],
    "pyspark.sql.types": ["Row", "_create_row"],
    "uuid": ["UUID", "SafeUUID"],
    "zoneinfo": ["ZoneInfo"],
}


class TypeRegistry:
    """Finds a class by module and qualified name, among those that the job may use."""

    def __init__(self, classes: Iterable[type] = (), modules: Iterable[str] = ()) -> None:
        self._classes = {(c.__module__, c.__qualname__): c for c in classes}
        self._modules = sorted(set(modules) - {"__main__"})
        self._seen: dict[tuple[str, str], Any] = {}

    @staticmethod
    def of(plan: Plan) -> TypeRegistry:
        """The classes of ``plan``. Raises ``SerializationError`` for a function or selector that cannot be pickled."""
        recorder = _Recorder()
        for operator in plan.operators:
            _record_operator(recorder, operator)
        for edge in plan.edges:
            if edge.key_selector is not None:
                owner = plan.operators[edge.target]
                recorder.record(edge.key_selector, f"the key selector of {owner}, defined at {owner.location},")
        recorder.classes.update(plan.record_types)
        return TypeRegistry(recorder.classes, recorder.modules)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._classes, self._modules)

    def knows(self, kind: type) -> bool:
        """Whether ``kind`` itself is registered (a class of the same name is not enough)."""
        return self._classes.get((kind.__module__, kind.__qualname__)) is kind

    def install(self) -> None:
        """Make the program's own top-level classes importable in this process, so that plain pickle finds them.

        Called in workers, whose ``__main__`` is not the user's program.
        """
        main = sys.modules["__main__"]
        for (module, name), kind in self._classes.items():
            if module == "__main__" and "." not in name:
                setattr(main, name, kind)

    def find(self, module: str, name: str) -> Any:
        """The class called ``name`` in ``module``. Raises ``CorruptDataError`` if the job does not bring it."""
        found = self._seen.get((module, name))
        if found is None:
            found = self._seen[module, name] = self._look_up(module, name)
        return found

    def _look_up(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return _attribute(module, name)
        if (kind := self._classes.get((module, name))) is not None:
            return kind
        if module in self._modules:
            kind = _attribute(module, name)
            if isinstance(kind, type) and (kind.__module__, kind.__qualname__) == (module, name):
                return kind
        for owner in self._modules:
            for value in vars(import_module(owner)).values():
                if _is_data_class(value) and (value.__module__, value.__qualname__) == (module, name):
                    return value
        raise CorruptDataError(
            f"The bytes name {module}.{name}, which this job does not bring. If it is the class of a record, of a "
            f"value in a state or of a function's field, call env.register_type({name.rpartition('.')[2]})."
        )


def _rebuild(classes: dict[tuple[str, str], type], modules: list[str]) -> TypeRegistry:
    for (_, name), kind in classes.items():
        if kind.__qualname__ != name:
            kind.__qualname__ = name  # cloudpickle brings classes of functions and of __main__ without it
    return TypeRegistry(classes.values(), modules)


def _attribute(module: str, name: str) -> Any:
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _is_data_class(value: Any) -> bool:
    # A class that a module merely imports may do anything in its constructor; these only hold values.
    if not isinstance(value, type):
        return False
    return (
        dataclasses.is_dataclass(value)
        or issubclass(value, Enum)
        or (issubclass(value, tuple) and hasattr(value, "_fields"))
    )


class _Recorder:
    """Pickles the parts of a job for the classes and modules they mention."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.modules: set[str] = set()

    def record(self, part: Any, what: str) -> None:
        """Note what ``part`` mentions; ``what`` names it in the error if it cannot be pickled."""
        home = part if hasattr(part, "__module__") and hasattr(part, "__qualname__") else type(part)
        if isinstance(home.__module__, str) and not _is_standard(home.__module__):
            self.modules.add(home.__module__)
        try:
            _RecordingPickler(self.classes, self.modules).dump(part)
        except Exception as error:
            raise SerializationError(_explain(part, what, error)) from error


class _RecordingPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
    def __init__(self, classes: set[type], modules: set[str]) -> None:
        super().__init__(io.BytesIO())
        self._classes = classes
        self._modules = modules

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        by_name = reduced is NotImplemented
        if isinstance(obj, type):
            if not (by_name and _is_standard(obj.__module__)):  # code may mention subprocess.Popen, bytes may not
                self._classes.add(obj)
        elif isinstance(obj, FunctionType):
            if by_name and not _is_standard(obj.__module__):
                # The classes that it mentions stay unseen: those of its module may be meant.
                self._modules.add(obj.__module__)
        elif type(obj).__module__ != "builtins":
            self._classes.add(type(obj))
        return reduced


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _record_operator(recorder: _Recorder, operator: Operator) -> None:
    body, where = operator.body, f"{operator}, defined at {operator.location},"
    if isinstance(body, ProcessFunction):
        for part in body.written_by_user if isinstance(body, WrappingFunction) else ():
            recorder.record(part, f"the function of {where}")
        recorder.record(body, f"the function of {where}")
        recorder.classes.add(type(body))
        recorder.classes.update(_state_classes(body, where))
        if isinstance(body, ColumnarFunction):
            recorder.classes.update(body.record_types)
        for selector in operator.output_keys:
            if selector is not None:
                recorder.record(selector, f"the output key selector of {where}")
    elif isinstance(body, CollectionSource):
        for first in {type(item): item for item in reversed(body.items)}.values():
            recorder.record(first, f"an element of {where}")
            recorder.classes.add(type(first))
    elif isinstance(body, IndexedSource | Source):
        recorder.record(body, f"the source {where}")
        recorder.classes.update(body.record_types if isinstance(body, Source) else ())
        recorder.record(operator.watermarks, f"the watermark strategy of the source {where}")
    elif isinstance(body, DataFrameSource):
        recorder.classes.add(body.record_type)
    elif isinstance(body, Sink):
        recorder.classes.update(body.record_types)


def _state_classes(function: ProcessFunction, where: str) -> Iterator[type]:
    further = function.further_states() if isinstance(function, WrappingFunction) else ()
    for declaration in (*function.uses_states(), *further):
        for kind in set[type]().union(*map(classes_in, declaration.types)):
            if not _is_standard(kind.__module__):
                yield kind
            elif not _can_be_read(kind):
                raise SerializationError(
                    f"{declaration} of {where} cannot be checkpointed: bytes may not name "
                    f"{kind.__module__}.{kind.__qualname__}. Keep plain values, or what it can be made from again."
                )


def _can_be_read(kind: type) -> bool:
    # An abstract container says nothing of the class that a value will have.
    return (
        kind.__qualname__ in _PLAIN.get(kind.__module__, ())
        or kind in (type, type(None))
        or (issubclass(kind, Sized) and kind.__module__ == "collections.abc")
    )


def _explain(part: Any, what: str, error: Exception) -> str:
    for name, value in getattr(part, "__dict__", {}).items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            return (
                f"Field {name!r} ({type(value).__qualname__}) of {what} cannot be pickled: {error}. "
                f"Make it from plain values, or define __getstate__ (without the field) and __setstate__ (which builds "
                f"it again)."
            )
    return f"{what[0].upper()}{what[1:]} cannot be pickled: {error}. It must not capture sessions, locks or open files."
