"""Import rules, read from the source files so that imports inside functions count as well."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Set
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

from tests import ROOT

FILES = sorted(file for package in ("dsv2", "runtime_spark") for file in (ROOT / package).rglob("*.py"))

# The rooms, from the ground floor up. A room imports rooms of the rows above its own only: no arrow runs up.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base", "version"),
    ("errors",),
    ("checks",),
    ("file_log", "state", "watermark"),
    ("model",),
    ("spi",),
    ("functions", "sinks", "sources"),
    ("aggregates", "graph"),
    ("extension",),
    ("streams",),
    ("plan_view",),
    ("jobs",),
    ("connectors", "runtime"),
    ("arrow", "dead_letters", "tables"),
    ("checkpoint",),
    ("savepoint", "views"),
    ("client", "local"),
    ("environment",),
    ("__init__", "cli", "runtime_spark", "testing"),
    ("__main__",),
)


def one_by_one(names: str) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names.split())


# Packages and modules in the order of imports: each imports only those before it.
ORDERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "dsv2": LAYERS,
    "dsv2.runtime": one_by_one("serde report state exchange operator sources rescale __init__"),
    "runtime_spark": one_by_one(
        "platform frames checkpoint savepoint start source task sink job compiler runtime dataframe command_line "
        "__init__"
    ),
}

# What may be missing, so that rooms below import it by its name when it is asked for: it needs a further library.
OPTIONAL = {"arrow"}

# The dependencies of the package "dsv2" in pyproject.toml. Spark and its dependencies are an extra.
DEPENDENCIES = {"cloudpickle", "msgspec", "typing_extensions"}
# Package of connectors -> the client libraries that its extras install.
CLIENTS = {
    "delta": {"deltalake", "pyarrow"},
    "files": {"pyarrow"},
    "formats": {"confluent_kafka", "fastavro", "google"},
    "http": {"urllib3"},
    "iceberg": {"pyarrow", "pyiceberg"},
    "kafka": {"confluent_kafka"},
    "kinesis": {"boto3", "botocore"},
    "lakehouse": {"pyarrow"},
    "mqtt": {"paho"},
    "nats": {"nats"},
    "opensearch": {"urllib3"},
    "postgres": {"psycopg"},
    "redis": {"redis"},
    "sql": {"sqlalchemy"},
}
MONITORING = {"opentelemetry", "prometheus_client"}
HEAVY = (
    "pyspark",
    "narwhals",
    "pandas",
    "pyarrow",
    "numpy",
    "rich",
    "runtime_spark",
    "starlette",
    "uvicorn",
    *sorted(MONITORING.union(*CLIENTS.values())),
)


@cache
def imports(file: Path) -> frozenset[str]:
    """The absolute names that ``file`` imports. For the top package, the names imported from it."""
    package = ".".join(file.relative_to(ROOT).parent.parts)
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            found.update([f"dsv2.{alias.name}" for alias in node.names] if module == "dsv2" else [module])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "import_module":
            found.update(names_of_modules(node.args[0]))
    return frozenset(found)


def names_of_modules(argument: ast.expr) -> list[str]:
    """The module that is imported by its name, unless it is in a room that may be missing."""
    name = argument.value if isinstance(argument, ast.Constant) else None
    return [name] if isinstance(name, str) and name.startswith("dsv2.") and room_of(name) not in OPTIONAL else []


def room_of(module: str, package: str = "dsv2") -> str:
    """The room of ``package`` that has a module; empty if it is elsewhere."""
    if package == "dsv2" and module.partition(".")[0] == "runtime_spark":
        return "runtime_spark"
    return module.removeprefix(f"{package}.").partition(".")[0] if module.startswith(f"{package}.") else ""


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def beyond(allowed: Callable[[Path], Set[str]], imported: Callable[[Path], Set[str]]) -> dict[str, list[str]]:
    """Return the imports that are not allowed, by the name of the file."""
    found = {str(file.relative_to(ROOT)): sorted(imported(file) - allowed(file)) for file in FILES}
    return {file: names for file, names in found.items() if names}


@pytest.mark.parametrize("package", ORDERS)
def test_imports_run_down(package: str) -> None:
    floors = {room: floor for floor, rooms in enumerate(ORDERS[package]) for room in rooms}

    def own(file: Path) -> set[str]:
        return {room_of(name, package) for name in imports(file)} if room_of(name_of(file), package) else set()

    def allowed(file: Path) -> set[str]:
        room = room_of(name_of(file), package)
        return {room, "", *(other for other, floor in floors.items() if room and floor < floors[room])}

    assert beyond(allowed, own) == {}


def test_documented_rooms_are_those_of_the_rules() -> None:
    section = (ROOT / "docs/architecture.md").read_text().split("## The rooms")[1].split("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in section.splitlines() if row.startswith("| `")]
    assert rows == [list(rooms) for rooms in LAYERS]


@pytest.mark.parametrize("package", ORDERS)
def test_every_room_has_a_place(package: str) -> None:
    found = {room_of(name_of(file), package) for file in FILES} - {""}
    assert found == {room for rooms in ORDERS[package] for room in rooms}


@pytest.mark.parametrize("package", ["dsv2.runtime", "runtime_spark"])
def test_documented_orders_are_those_of_the_rules(package: str) -> None:
    section = (ROOT / "docs/architecture.md").read_text().split("## The rooms")[1].split("\n## ")[0]
    (text,) = (one for one in section.split("\n\n") if one.startswith(f"`{package.removeprefix('dsv2.')}`"))
    assert re.findall(r"`(\w+)`", text)[1:] == [room for (room,) in ORDERS[package] if room != "__init__"]


def test_dsv2_needs_only_its_dependencies() -> None:
    def packages(file: Path) -> set[str]:
        return {name.partition(".")[0] for name in imports(file)}

    assert beyond(packages_allowed_in, packages) == {}


def packages_allowed_in(file: Path) -> set[str]:
    room = room_of(name_of(file))
    allowed = {*sys.stdlib_module_names, *DEPENDENCIES, "dsv2"}
    if room == "runtime_spark":
        allowed |= {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "runtime_spark"}
    elif room in ("savepoint", "cli", "client", "dead_letters"):
        allowed |= {"pandas", "pyarrow", "pyspark"}  # for a caller that asks for their types
        allowed |= {"duckdb"} if file.name == "state_sql.py" else set()
    elif file in (ROOT / "dsv2/streams/expressions.py", ROOT / "dsv2/aggregates/result_field.py"):
        allowed |= {"narwhals"}  # for the type of expressions
    elif file == ROOT / "dsv2/streams/base.py":
        allowed |= {"pandas"}  # for the type that to_pandas returns
    elif file == ROOT / "dsv2/views/terminal/screen.py":
        allowed |= {"rich"}  # imported if it is installed
    elif "dsv2/views/dashboard/" in str(file):
        allowed |= {"starlette", "uvicorn"}
    elif room == "arrow":
        allowed |= {"narwhals", "numpy", "pyarrow"}
    elif "dsv2/views/metrics/" in str(file):
        allowed |= MONITORING
    elif room == "connectors":
        allowed |= CLIENTS.get(file.parent.name, set())
    return allowed


MEASURED_IMPORT = f"""
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)  # unlike time, calls do not depend on the machine
import dsv2, dsv2.functions, dsv2.watermark, dsv2.sources, dsv2.sinks
sys.setprofile(None)
print(calls, *(name for name in {HEAVY} if name in sys.modules))
"""


def test_importing_dsv2_is_fast() -> None:
    calls, *heavy = subprocess.check_output([sys.executable, "-c", MEASURED_IMPORT], cwd=ROOT, text=True).split()
    assert heavy == []
    assert int(calls) < 150_000  # 131,000 to 141,000, by the folders on the path: about 0.1 s


def test_asyncio_is_imported_for_async_functions_only() -> None:
    code = "import sys, dsv2.runtime.operator.subtask; print('asyncio' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False\n"


def test_importing_the_spark_runtime_leaves_out_pandas() -> None:
    """Only tasks need it. Each source is a process that imports the user's program, and with it the runtime."""
    code = "import sys, runtime_spark.runtime, runtime_spark.dataframe; print('pandas' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "False\n"


@pytest.mark.parametrize("package", CLIENTS)
def test_connectors_import_without_their_client_library(package: str) -> None:
    code = f"import sys, dsv2.connectors.{package}; print(*(name for name in {HEAVY} if name in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "\n"
