"""Computes a digest of a key selector, to detect a selector that now reads another field.

The digest covers the selector's bytecode and constants, and the user code and data that it reaches: captured values,
values and functions of its own module and of imported modules, and the methods and properties that it calls on callable
objects and on records of a declared type. For the standard library and installed packages, it covers only names. It
does not cover positions in files, or anything reached in other ways (computed attribute names, files, large tables).
Bytecode differs between Python versions, so only digests of the same version are compared.
"""

from __future__ import annotations

import copy
import dis
import functools
import hashlib
import importlib
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default repr; differs between processes
_ATOMS = (int, float, complex, str, bytes, bool, type(None), type(...))
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_OURS = {"dsv2", "runtime_spark"}
_MAX_ITEMS = 10_000  # larger tables are described by their length
_MAX_VALUES = 100_000  # further values are described by their types
_MAX_DEPTH = 50
_MAX_BITS = 2_000  # of whole numbers with a decimal representation: Python refuses the conversion of larger ones

Names = frozenset[str]


def fingerprint(selector: Callable[..., Any], record_type: object = None) -> str:
    """Return the digest of ``selector`` as hex. ``record_type``: The declared type of the records, if there is one."""
    reach = _Reach(_module_of(selector).partition(".")[0])
    described = reach.describe(selector, Names())
    members = [reach.members(kind, reach.names_used(selector)) for kind in _classes_in(record_type)]
    return _digest(f"{described} {[member for member in members if member]}")[:32]


class _Reach:
    """Describes values as text. ``names`` are the attributes that the code that reached a value uses."""

    def __init__(self, package: str) -> None:
        """``package``: The package of the selector, which is user code even if it is installed."""
        self._package = package
        self._known: dict[tuple[int, object], tuple[object, str]] = {}  # holds the value, so that its id is not reused
        self._depth = 0

    def describe(self, value: object, names: Names, owner: object = None) -> str:
        """Describe ``value``. ``owner``: The object or class that a function belongs to."""
        if type(value) in _ATOMS:
            return f"{type(value).__name__} {_text_of(value, type(value))}"
        place = (id(value), (names, id(owner)))
        if place not in self._known:
            if len(self._known) > _MAX_VALUES or self._depth > _MAX_DEPTH:
                return f"beyond {type(value).__qualname__}"
            self._known[place] = (
                value,
                f"again {len(self._known)}",
            )  # a placeholder, because the value may reach itself
            self._depth += 1
            text = _digest(self._describe(value, names, owner))
            self._depth -= 1
            self._known[place] = (value, text)
        return self._known[place][1]

    def _describe(self, value: Any, names: Names, owner: object) -> str:
        match value:
            case FunctionType():
                return self._function(value, owner)
            case MethodType():
                called = self.describe(value.__func__, names, value.__self__)
                return f"method {called} of {self.describe(value.__self__, names)}"
            case BuiltinFunctionType():
                return f"method {value.__name__} of {self.describe(value.__self__, Names())}"
            case functools.partial():
                return f"partial {self._all((value.func, value.args, value.keywords), names)}"
            case classmethod() | staticmethod():
                return self.describe(value.__func__, names, owner)
            case property():
                return f"property {self.describe(value.fget, names, owner)}"
            case functools.cached_property():
                return f"property {self.describe(value.func, names, owner)}"
            case CodeType():
                return self._code(value)
            case ModuleType():
                return f"module {value.__name__}{self._of_module(value, names)}"
            case type():
                return f"class {_name(value)} {self.members(value, names)}"
            case Enum():
                return f"{_name(type(value))} {value.name} {self.describe(value.value, names)}"
            case list() | tuple() | set() | frozenset() | dict():
                return f"{_name(type(value))} {self._items(value, names)}"
        return self._object(value, names)

    def _all(self, values: Iterable[object], names: Names) -> list[str]:
        return [self.describe(value, names) for value in values]

    def _items(self, value: Any, names: Names) -> list[str]:
        if len(value) > _MAX_ITEMS:
            return [f"{len(value)} items"]
        if isinstance(value, list | tuple):
            return self._all(value, names)
        # The order of a set differs between processes, and equal dicts may be ordered differently.
        if isinstance(value, dict):
            return sorted(f"{self._apart(key, names)}: {self._apart(item, names)}" for key, item in value.items())
        return sorted(self._apart(item, names) for item in value)

    def _apart(self, value: object, names: Names) -> str:
        """Describe ``value`` independently of the other values in the same set or dict."""
        if type(value) in _ATOMS:
            return self.describe(value, names)
        other = copy.copy(self)
        other._known = dict(self._known)
        return other.describe(value, names)

    def _object(self, value: object, names: Names) -> str:
        kind = type(value)
        users = self._is_users(kind.__module__)
        calls = isinstance(inspect.getattr_static(kind, "__call__", None), FunctionType)
        if not users and any("__repr__" in vars(base) for base in kind.__mro__[:-1]) and not calls:
            return f"{_name(kind)} {_ADDRESS.sub('', repr(value))}"
        if not users and not callable(value):
            return _name(kind)
        base: Any = next((base for base in _ATOMS if isinstance(value, base)), None)
        plain = "" if base is None else _text_of(value, base)
        state = self.describe(object.__getstate__(value), names)
        return f"object of {_name(kind)} {plain} {state} {self.members(kind, names | {'__call__'}, value)}"

    def members(self, kind: type, names: Names, owner: object = None) -> list[str]:
        """Describe the members ``names`` of a user class, and the methods that Python calls implicitly.

        Fields are left out, because records and state values may get new ones.
        """
        found: dict[str, object] = {}
        for base in reversed(kind.__mro__):
            if self._is_users(base.__module__):
                found |= {
                    name: member
                    for name, member in vars(base).items()
                    if name in names or (_is_special(name) and self._is_written(member))
                }
        described = [
            f"{name} {self.describe(member, names, owner or kind)}"
            for name, member in sorted(found.items())
            if not inspect.ismemberdescriptor(member) and not _is_field(kind, name)
        ]
        fields = _hints(kind) if self._is_users(kind.__module__) else {}
        for name in sorted(names & fields.keys()):
            for inner in _classes_in(fields[name]):
                if inner is not kind and (of_field := self._members_once(inner, names)):
                    described.append(f"{name} {of_field}")
        return described

    def _members_once(self, kind: type, names: Names) -> str:
        place = (id(kind), ("members", names))
        if place not in self._known:
            self._known[place] = (kind, "")
            self._known[place] = (kind, "".join(self.members(kind, names)))
        return self._known[place][1]

    def _of_module(self, module: ModuleType, names: Names) -> list[str]:
        if not self._is_users(module.__name__):
            return []
        of_module = vars(module)
        return [f"{name} {self.describe(of_module[name], names)}" for name in sorted(names & of_module.keys())]

    def _function(self, function: FunctionType, owner: object) -> str:
        captured = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        names = _names_in(function.__code__)
        given = [self._all(captured, names), self.describe((function.__defaults__, function.__kwdefaults__), names)]
        if not self._is_users(function.__module__ or ""):
            return f"function {function.__module__}.{function.__qualname__} {given}"
        reached = [
            self.describe(function.__globals__[name], names)
            for name in _globals_in(function.__code__)
            if name in function.__globals__
        ]
        imported = self._all(_imported_by(function), names)
        around = owner if owner is not None else _class_of(function)
        at_home = [] if around is None else [self.describe(around, names)]
        hints = [hint for name, hint in sorted(_hints(function).items()) if name != "return"]
        of_types = filter(None, (self._members_once(kind, names) for hint in hints for kind in _classes_in(hint)))
        return f"function {self._code(function.__code__)} {given} {reached} {imported} {at_home} {[*of_types]}"

    def _code(self, code: CodeType) -> str:
        # Only the constants that are used; the docstring is not.
        used = [instruction.argval for instruction in dis.get_instructions(code) if instruction.opcode in dis.hasconst]
        return f"{code.co_code.hex()} {code.co_names} {self._all(used, Names())} {code.co_argcount}"

    def names_used(self, selector: object) -> Names:
        """Return the attributes that ``selector`` may read from a record."""
        function = selector if isinstance(selector, FunctionType) else getattr(selector, "__func__", None)
        if function is None:
            function = inspect.getattr_static(type(selector), "__call__", None)
        if isinstance(function, FunctionType):
            return _names_in(function.__code__)
        return Names(re.findall(r"\w+", repr(selector)))  # operator.attrgetter, operator.methodcaller

    def _is_written(self, member: object) -> bool:
        """Return whether the user wrote a method, rather than ``dataclass``, ``NamedTuple`` or similar."""
        if not isinstance(member, FunctionType) or not self._is_users(member.__module__ or ""):
            return False
        return not inspect.unwrap(member).__code__.co_filename.startswith("<")

    def _is_users(self, module: str) -> bool:
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top in _OURS:
            return top == "__main__"
        return top == self._package or not _is_installed(top)


def _text_of(value: Any, kind: Any) -> str:
    """The representation of ``value`` as a value of ``kind``."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return hex(value)
    text: str = kind.__repr__(value)
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _module_of(selector: object) -> str:
    return getattr(selector, "__module__", None) or type(selector).__module__


@functools.cache
def _is_installed(package: str) -> bool:
    module = sys.modules.get(package)
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any("site-packages" in place or "dist-packages" in place for place in places)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name != "__init_subclass__"


def _is_field(kind: type, name: str) -> bool:
    return name in getattr(kind, "_fields", ()) or name in getattr(kind, "__dataclass_fields__", ())


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _class_of(function: FunctionType) -> type | None:
    """Return the class in its module that ``function`` is a method of."""
    found: object = function.__globals__.get(function.__qualname__.rpartition(".")[0])
    is_method = isinstance(found, type) and vars(found).get(function.__name__) is function
    return found if isinstance(found, type) and is_method else None


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a comprehension, an inner function
            yield from _parts(constant)


def _names_in(code: CodeType) -> Names:
    return Names(name for part in _parts(code) for name in part.co_names)


def _globals_in(code: CodeType) -> list[str]:
    instructions = (instruction for part in _parts(code) for instruction in dis.get_instructions(part))
    return list(dict.fromkeys(one.argval for one in instructions if one.opname in _LOADS))


def _imported_by(function: FunctionType) -> list[ModuleType]:
    """Return the modules that ``function`` imports when it runs."""
    modules = []
    for part in _parts(function.__code__):
        instructions = [one for one in dis.get_instructions(part) if one.opname != "EXTENDED_ARG"]
        for index, instruction in enumerate(instructions):
            if instruction.opname == "IMPORT_NAME":
                name = "." * instructions[index - 2].argval + instruction.argval
                try:
                    modules.append(importlib.import_module(name, function.__globals__.get("__package__")))
                except ImportError:
                    continue
    return modules


def _hints(value: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(value)
    except Exception:  # a name that only a type checker can resolve, or a value without annotations
        return {}


def _classes_in(hint: object) -> list[type]:
    """Return the classes in an annotation."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return [hint]
    return [kind for argument in typing.get_args(hint) for kind in _classes_in(argument)]
