"""The public API: ``__all__`` is complete and correct, and everything that users see is documented."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests import ROOT

_PACKAGES = (ROOT / "dsv2" / "connectors").glob("*/__init__.py")
CONNECTORS = sorted(file.parent.name for file in _PACKAGES if "\n__all__ = " in file.read_text())

# Everything a user needs comes from these.
FOR_USERS = (
    "dsv2",
    "dsv2.errors",
    "dsv2.jobs",
    "dsv2.model",
    "dsv2.streams",
    "dsv2.extension.event_time",
    "dsv2.extension.window",
    "dsv2.extension.join",
    "dsv2.functions",
    "dsv2.watermark",
    "dsv2.sources",
    "dsv2.sinks",
    *(f"dsv2.connectors.{name}" for name in CONNECTORS),
    "dsv2.state",
    "dsv2.tables",
    "dsv2.views.explain",
    "dsv2.views.logs",
    "dsv2.views.metrics.opentelemetry",
    "dsv2.views.metrics.prometheus",
    "dsv2.arrow",
    "dsv2.client",
    "dsv2.local",
    "dsv2.views.terminal",
    "dsv2.testing",
    "dsv2.testing.connectors",
    "runtime_spark",
)


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# These modules list their public names in ``__all__``. In others, names without an underscore are for the rest of dsv2.
FILES = sorted(
    file
    for package in ("dsv2", "runtime_spark")
    for file in (ROOT / package).rglob("*.py")
    if "\n__all__ = " in file.read_text() or name_of(file) in FOR_USERS
)


def bound(node: ast.stmt) -> set[str]:
    """The names that a statement of a module binds."""
    match node:
        case ast.ClassDef() | ast.FunctionDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return {name}
    return set()


def is_public(node: ast.stmt, package: str) -> bool:
    """Return whether ``node`` defines a name that ``__all__`` must list.

    Constants and imported names may be left out. ``package`` is the package of an ``__init__``, else empty.
    """
    if isinstance(node, ast.ImportFrom):
        return bool(package) and (node.module or "").startswith(package)
    alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
    return alias or isinstance(node, ast.ClassDef | ast.FunctionDef)


def all_of(module: ast.Module) -> tuple[str, ...]:
    values = [node.value for node in module.body if isinstance(node, ast.Assign) and bound(node) == {"__all__"}]
    assert len(values) == 1, "one __all__"
    assert isinstance(values[0], ast.Tuple), "__all__ is a tuple"
    names: tuple[str, ...] = ast.literal_eval(values[0])
    assert len(set(names)) == len(names)
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_all_lists_existing_names(file: Path) -> None:
    module = ast.parse(file.read_text())
    assert set(all_of(module)) <= set[str]().union(*map(bound, statements(module)))


def statements(module: ast.Module) -> Iterator[ast.stmt]:
    """The top-level statements, including imports for type checkers."""
    for node in module.body:
        yield from node.body if isinstance(node, ast.If) else (node,)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_all_lists_every_public_name(file: Path) -> None:
    module = ast.parse(file.read_text())
    package = ".".join(file.relative_to(ROOT).parent.parts) if file.name == "__init__.py" else ""
    public = {name for node in module.body if is_public(node, package) for name in bound(node)}
    assert {name for name in public if not name.startswith("_")} <= set(all_of(module))


def documented_parts(module_name: str) -> Iterator[tuple[str, object]]:
    """Each public class and function, and each public method and property of dsv2 that users call on it."""
    module = import_module(module_name)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            ours = [owner for owner in value.__mro__ if owner.__module__.startswith(("dsv2", "runtime_spark"))]
            members = {member for owner in ours for member in vars(owner) if not member.startswith("_")}
            parts = ((member, getattr(value, member)) for member in sorted(members))
            yield from (
                (f"{name}.{member}", part)
                for member, part in parts
                if inspect.isroutine(part) or isinstance(part, property)
            )


def test_front_door_has_the_everyday_names_only() -> None:
    everyday = set(import_module("dsv2").__all__)
    packages = set[str]().union(*(import_module(name).__all__ for name in FOR_USERS if name != "dsv2"))
    assert everyday - packages == {"ExecutionEnvironment", "__version__"}
    assert len(everyday) <= 45


@pytest.mark.parametrize("module", FOR_USERS)
def test_everything_for_users_is_documented(module: str) -> None:
    assert inspect.getdoc(import_module(module))
    parts = dict(documented_parts(module))
    assert [name for name, part in parts.items() if not is_documented(part)] == []


def is_documented(part: object) -> bool:
    if not inspect.isclass(part):
        return bool(inspect.getdoc(part))  # an override is documented by the overridden method
    # A class needs its own docstring. The signature that dataclass generates does not count.
    return bool(part.__doc__) and not str(part.__doc__).startswith(f"{part.__name__}(")
