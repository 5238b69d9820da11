"""The data classes of a job. Apart from built-in types, decoded bytes may only name these.

They are collected by pickling the job's functions, which also detects functions that cannot be sent to the workers.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from inspect import isabstract
from types import FunctionType
from typing import Any

import cloudpickle
from typing_extensions import is_protocol

from dsv2.errors import ConfigurationError, CorruptDataError, SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan, RegisteredType
from dsv2.model.resource import Resource
from dsv2.runtime.serde.data_types import L
from dsv2.runtime.serde.layouts import (
    ClassLayout,
    EnumLayout,
    RecordLayout,
    SubclassLayout,
    layout_of,
    name_of,
    shown,
)
from dsv2.runtime.serde.nodes import ATOMIC
from dsv2.runtime.serde.values import CONTAINERS, Converter, converter_named, converter_of
from dsv2.sinks import Sink
from dsv2.sources import CollectionSource, DataFrameSource, HybridSource, IndexedSource, Source
from dsv2.spi import ColumnarFunction, WrappingFunction
from dsv2.state import StateDeclaration
from dsv2.state.types import classes_in
from dsv2.watermark import (
    AtLeastChannels,
    BoolWatermark,
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    GeneralCombinationFunction,
    LongWatermark,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    Quantile,
    VectorClock,
    Watermark,
    WatermarkCombinationPolicy,
    WatermarkDeclaration,
    WatermarkDelivery,
    WatermarkHandlingResult,
    WatermarkHandlingStrategy,
)
from dsv2.watermark.declaration import WatermarkScope
from dsv2.watermark.keyed import KeyedWatermark, KeyedWatermarkDeclaration
from dsv2.watermark.value_type import BoolType, DataType, FloatType, LongType, SetType, StrType, VectorType


def current_name(name: str, former_names: Mapping[str, str]) -> str:
    """Return what the class with the dotted ``name`` is called now.

    Args:
        name: Module and qualified name, as they were when a value was stored.
        former_names: Former name -> current name. Classes that are nested in a renamed class are renamed with it.
    """
    outer, nested = name, ""
    while outer:
        if (found := former_names.get(outer)) is not None:
            return found + nested
        outer, dot, inner = outer.rpartition(".")
        nested = f"{dot}{inner}{nested}"
    return name


_OURS = (  # a function may emit them as records or store them in a field
    *(Watermark, BoolWatermark, LongWatermark, VectorClock),
    *(BoolType, DataType, FloatType, LongType, SetType, StrType, VectorType),
    *(WatermarkDeclaration, BoolWatermarkDeclaration, LongWatermarkDeclaration, WatermarkCombinationPolicy),
    *(BoolWatermarkCombinationFunction, NumericWatermarkCombinationFunction, GeneralCombinationFunction),
    *(AtLeastChannels, Quantile, WatermarkDelivery, WatermarkScope, KeyedWatermark, KeyedWatermarkDeclaration),
    *(WatermarkHandlingResult, WatermarkHandlingStrategy),
)
_PLAIN = {*ATOMIC, *CONTAINERS, tuple, frozenset, object, type}
_FORMS: dict[type[ClassLayout], str] = {
    RecordLayout: "a class with fields",
    SubclassLayout: "a subclass of a built-in type",
    EnumLayout: "an enumeration",
}


class TypeRegistry:
    """``DataTypes`` of a job: its classes by module and qualified name, and their layouts."""

    def __init__(
        self,
        classes: Iterable[type] = (),
        modules: Iterable[str] = (),
        registered: Iterable[RegisteredType] = (),
    ) -> None:
        self._classes = {(c.__module__, c.__qualname__): c for c in (*_OURS, *classes)}
        self._modules = sorted(set(modules) - {"__main__"})
        self._registered = tuple(registered)
        self._current_names = {former: name_of(r.kind) for r in self._registered for former in r.formerly}
        self._converters = {
            name_of(r.kind): Converter(name_of(r.kind), r.take_apart, r.build, any_parts=True)
            for r in self._registered
            if r.take_apart is not None and r.build is not None
        }
        self._by_class: dict[type, ClassLayout | Converter] = {}
        self._by_name: dict[str, ClassLayout] = {}

    @staticmethod
    def of(plan: Plan) -> TypeRegistry:
        """Collect the classes of ``plan``.

        Raises:
            SerializationError: A function or selector cannot be pickled, or a state cannot be checkpointed.
            ConfigurationError: The job uses a class under the former name of another one.
        """
        recorder = _Recorder()
        for operator in plan.operators:
            _record_operator(recorder, operator)
        for edge in plan.edges:
            if edge.key_selector is not None:
                owner = plan.operators[edge.target]
                recorder.record(edge.key_selector, f"the key selector of {owner}, defined at {owner.location},")
        recorder.classes.update(registered.kind for registered in plan.registered_types)
        for declaration in plan.declarations.values():
            _record_values(recorder, declaration)
        registry = TypeRegistry(recorder.classes, recorder.modules, plan.registered_types)
        registry.check_former_names()
        for operator in plan.operators:
            if isinstance(operator.body, ProcessFunction):
                _check_states(registry, operator.body, f"{operator}, defined at {operator.location},")
        for declaration in plan.declarations.values():
            _check_values(registry, declaration)
        return registry

    def with_classes(self, kinds: Iterable[type]) -> TypeRegistry:
        """Return a registry with more classes. Those of the standard library are left out, as in ``of``."""
        more = [kind for kind in kinds if not _is_standard(kind.__module__)]
        return TypeRegistry([*self._classes.values(), *more], self._modules, self._registered)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._classes, self._modules, self._registered)

    def layout_of(self, kind: type) -> ClassLayout | Converter:
        """Return the layout of ``kind``. Raises ``SerializationError`` if they cannot be, or not read back."""
        found = self._by_class.get(kind)
        if found is None:
            found = self._by_class[kind] = self._new_layout(kind)
        return found

    def layout_named(self, name: str, form: type[L], *, shared: bool = False) -> L:
        """Return how values of the class ``name`` are decoded.

        Raises:
            CorruptDataError: The job lacks the class, or its layout is not ``form``.
        """
        found = self._by_name.get(name)
        if found is None:
            kind = self.find(*self._current(name).partition(":")[::2])
            try:
                found = self._by_name[name] = layout_of(kind)
            except SerializationError as error:
                raise CorruptDataError(f"The bytes name {shown(kind)}. {error}") from error
        if not isinstance(found, form):
            raise CorruptDataError(f"{name} was {_FORMS[form]} and no longer is.")
        return found

    def converter_named(self, name: str) -> Converter:
        """Return the converter ``name``. Raises ``CorruptDataError`` if there is none."""
        return self._converters.get(self._current(name)) or converter_named(name)

    def class_named(self, dotted: str) -> type | None:
        """Return the class of the job that has or had this module and qualified name, or None."""
        current = current_name(dotted, self._current_names)
        if current == dotted:
            return self._class_at(dotted)
        try:
            return self.find(*current.partition(":")[::2])
        except CorruptDataError:
            return None

    def check_former_names(self) -> None:
        """Raise ``ConfigurationError`` if a former name is also the name of a class that the job uses."""
        for registered in self._registered:
            for former in registered.formerly:
                if (kind := self._class_at(former)) is not None and kind is not registered.kind:
                    raise ConfigurationError(
                        f"register_type({registered.kind.__qualname__}, formerly={former!r}): the job also uses "
                        f"another class of this name, so it cannot tell whose values are stored. Rename that class."
                    )

    def _class_at(self, dotted: str) -> type | None:
        """The class of the job with this module and qualified name."""
        parts = dotted.split(".")
        for size in range(len(parts) - 1, 0, -1):
            try:
                return self.find(".".join(parts[:size]), ".".join(parts[size:]))
            except CorruptDataError:
                continue
        return None

    def _current(self, name: str) -> str:
        if not self._current_names:
            return name
        dotted = name.replace(":", ".")
        current = current_name(dotted, self._current_names)
        return name if current == dotted else current

    def _new_layout(self, kind: type) -> ClassLayout | Converter:
        if (converter := self._converters.get(name_of(kind)) or converter_of(kind)) is not None:
            return converter
        if kind is Resource:
            raise SerializationError(
                "A Resource is not data. Create it as a class attribute or in the constructor of the function."
            )
        if issubclass(kind, Coroutine | AsyncGenerator):
            raise SerializationError(
                f"A result of an async function was not awaited ({kind.__name__}): write await before the call."
            )
        name = kind.__qualname__
        remedy = (
            f"Store plain values instead, or register how it is converted to plain values: "
            f"env.register_type({name}, take_apart=..., build=...)."
        )
        try:
            layout = layout_of(kind)
        except SerializationError as error:
            raise SerializationError(f"{error} {remedy}") from error
        try:
            known = self.find(kind.__module__, name)
        except CorruptDataError:
            if _is_standard(kind.__module__):
                raise SerializationError(f"{shown(kind)} is not a data class. {remedy}") from None
            raise SerializationError(
                f"The class {shown(kind)} is unknown to the job. Call env.register_type({name})."
            ) from None
        if known is not kind:
            raise SerializationError(
                f"{shown(kind)} is not the class that the job uses under this name. Name one of them differently. If "
                f"it belongs to aggregate(...), use another class of results."
            )
        return layout

    def find(self, module: str, name: str) -> type:
        """Return the class ``name`` in ``module``. Raises ``CorruptDataError`` if the job does not use it."""
        if (kind := self._classes.get((module, name))) is not None:
            return kind
        if module in self._modules and (found := _class_in(module, name)) is not None:
            return found
        for owner in self._modules:
            for value in vars(import_module(owner)).values():
                if _is_data_class(value) and (value.__module__, value.__qualname__) == (module, name):
                    return value  # type: ignore[no-any-return]
        raise CorruptDataError(
            f"The bytes name {module}.{name}, which this job does not use. If it is the class of a record, of a "
            f"value in a state or of a function's field, call env.register_type({name.rpartition('.')[2]}). If it was "
            f"renamed or moved, register its new class with formerly={f'{module}.{name}'!r}."
        )


def _rebuild(
    classes: dict[tuple[str, str], type], modules: list[str], registered: tuple[RegisteredType, ...]
) -> TypeRegistry:
    for (_, name), kind in classes.items():
        if kind.__qualname__ != name:
            kind.__qualname__ = name  # cloudpickle loses it for local classes and those of __main__
    return TypeRegistry(classes.values(), modules, registered)


def _class_in(module: str, name: str) -> type | None:
    """The class defined in ``module`` under this name. Only classes are traversed."""
    owner: Any = import_module(module)
    for part in name.split("."):
        owner = vars(owner).get(part)
        if not isinstance(owner, type):
            return None
    return owner if (owner.__module__, owner.__qualname__) == (module, name) else None


def _is_data_class(value: Any) -> bool:
    # A class that a module only imports may be arbitrary. The following kinds only hold values.
    if not isinstance(value, type):
        return False
    return (
        dataclasses.is_dataclass(value)
        or issubclass(value, Enum)
        or (issubclass(value, tuple) and hasattr(value, "_fields"))
    )


class _Recorder:
    """Pickles the parts of a job to record the classes and modules that they refer to."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.modules: set[str] = set()

    def record(self, part: Any, what: str) -> None:
        """Record the classes and modules of ``part``. ``what`` names it in the error if it cannot be pickled."""
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
            if not (by_name and _is_standard(obj.__module__)):  # code may refer to subprocess.Popen, bytes may not
                self._classes.add(obj)
        elif isinstance(obj, FunctionType):
            if by_name and not _is_standard(obj.__module__):
                # It is pickled by name, which hides its classes, so allow the classes of its module.
                self._modules.add(obj.__module__)
        elif type(obj).__module__ != "builtins":
            self._classes.add(type(obj))
        return reduced


def check_picklable(part: Any, what: str) -> None:
    """Raise ``SerializationError`` if ``part`` cannot be sent to a worker. ``what`` names it in the error."""
    _Recorder().record(part, what)


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _record_operator(recorder: _Recorder, operator: Operator) -> None:
    body, where = operator.body, f"{operator}, defined at {operator.location},"
    for tag in operator.side_outputs:
        recorder.classes.update(classes_in(tag.record_type))
    if isinstance(body, ProcessFunction):
        for part in body.written_by_user if isinstance(body, WrappingFunction) else ():
            recorder.record(part, f"the function of {where}")
        recorder.record(body, f"the function of {where}")
        recorder.classes.add(type(body))
        recorder.classes.update(kind for _, kind in _state_classes(body) if not _is_standard(kind.__module__))
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
        for source in body.sources if isinstance(body, HybridSource) else ():
            recorder.record(source, f"a part of the source {where}")
        recorder.record(body, f"the source {where}")
        recorder.classes.update(body.record_types if isinstance(body, Source) else ())
        recorder.record(operator.watermarks, f"the watermark strategy of the source {where}")
    elif isinstance(body, DataFrameSource):
        recorder.classes.add(body.record_type)
    elif isinstance(body, Sink):
        recorder.classes.update(body.record_types)


def _state_classes(function: ProcessFunction) -> Iterator[tuple[StateDeclaration, type]]:
    further = function.further_states() if isinstance(function, WrappingFunction) else ()
    for declaration in (*function.uses_states(), *further):
        for kind in set[type]().union(*map(classes_in, declaration.types)):
            yield declaration, kind


def _check_states(registry: TypeRegistry, function: ProcessFunction, where: str) -> None:
    for declaration, kind in _state_classes(function):
        if kind in _PLAIN or isabstract(kind) or is_protocol(kind):  # they do not determine the class of a value
            continue
        try:
            registry.layout_of(kind)
        except SerializationError as error:
            raise SerializationError(f"{declaration} of {where} cannot be checkpointed. {error}") from error


def _record_values(recorder: _Recorder, declaration: WatermarkDeclaration) -> None:
    for kind in declaration.value_type.classes:
        if not _is_standard(kind.__module__):
            recorder.classes.add(kind)
            recorder.modules.add(kind.__module__)  # of the classes of its fields


def _check_values(registry: TypeRegistry, declaration: WatermarkDeclaration) -> None:
    try:
        for kind in declaration.value_type.classes:
            if kind not in _PLAIN:
                registry.layout_of(kind)
    except SerializationError as error:
        raise SerializationError(
            f"The values of watermark {declaration.identifier!r} cannot be sent. {error}"
        ) from error


def _explain(part: Any, what: str, error: Exception) -> str:
    for name, value in getattr(part, "__dict__", {}).items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            return (
                f"Field {name!r} ({type(value).__qualname__}) of {what} cannot be pickled: {error}. "
                f"Use plain values. Hold a model or a client in a dsv2.Resource. Or define __getstate__ (without the "
                f"field) and __setstate__ (which recreates it)."
            )
    return f"{what[0].upper()}{what[1:]} cannot be pickled: {error}. It must not capture sessions, locks or open files."
