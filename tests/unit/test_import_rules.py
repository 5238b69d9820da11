"""Import rules, read from the source files so that imports inside functions count as well."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Set
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FILES = sorted(file for package in ("dsv2", "runtime_spark") for file in (ROOT / package).rglob("*.py"))

# What users program against and what they build with it. It does not depend on how jobs run.
MODEL = {"async_resource", "async_settings", "context", "error_policy", "errors", "functions", "output_tag"}
MODEL |= {"printable", "record_batch", "record_position", "resource", "sinks", "sources", "spi", "state", "watermark"}
PLAN = MODEL | {"graph", "job", "job_listener", "progress"}
RUNTIME = PLAN | {"cells", "clock", "columnar", "event_loop", "extension", "log_scope"}
RUNTIME |= {"runtime_view", "tracebacks"}
RUNTIMES = {f"runtime.{part}" for part in ("serde", "report", "state", "exchange", "operator", "sources", "rescale")}

# Part of dsv2 (or runtime_spark) -> the parts of dsv2 that it may import in addition to itself. A new part needs a row.
# The packages of dsv2.runtime are parts.
MAY_IMPORT = {
    "aggregates": MODEL | {"arguments", "optional_types"},
    "arguments": {"errors"},
    "async_resource": {"callables", "errors", "event_loop", "resource"},
    "async_settings": {"arguments", "errors"},
    "callables": set[str](),
    "cells": set[str](),
    "columnar": set[str](),
    "record_batch": {"columnar"},
    "resource": {"callables", "errors"},
    "clock": set[str](),
    "errors": {"printable", "record_position"},
    "printable": set[str](),
    "record_position": set[str](),
    "event_loop": set[str](),
    "folders": set[str](),
    "paths": {"errors", "folders"},
    "version": set[str](),
    "error_policy": {"arguments", "errors", "record_position"},
    "optional_types": set[str](),
    "output_tag": {"errors"},
    "missing_methods": {"errors"},
    "watermark": {"arguments", "errors", "missing_methods"},
    "state": {"arguments", "callables", "errors"},
    "context": {"output_tag", "state", "watermark"},
    "spi": {"async_settings", "context", "errors", "output_tag", "record_batch", "state", "watermark"},
    "functions": {"arguments", "async_settings", "context", "errors", "record_batch", "spi", "state", "watermark"},
    "extension": MODEL - {"sinks"} | {"arguments", "callables", "columnar", "streams"},
    "arrow": MODEL
    | {"aggregates", "callables", "columnar", "connectors", "extension"}
    | {"optional_types", "runtime.serde", "runtime.state"},
    "file_log": {"clock", "errors", "folders", "optional_types", "program"},
    "connectors": {"arguments", "clock", "errors", "extension", "printable", "record_batch", "record_position"}
    | {"file_log", "folders", "resource", "sinks", "sources", "watermark"},
    "sinks": {"arguments", "errors", "printable", "record_batch", "watermark"},
    "sources": {"arguments", "clock", "errors", "record_batch", "record_position", "watermark"},
    "graph": MODEL | {"arguments", "callables", "cells", "explain"},  # Plan.explain imports it when it is called
    "runtime_view": {"folders", "graph"},
    "findings": PLAN | {"aggregates", "extension"},
    "explain": PLAN | {"aggregates", "extension", "findings", "runtime_view"},
    "progress": set[str](),
    "job_summary": {"explain", "printable", "progress", "watermark"},
    "metrics": PLAN | {"arguments", "clock", "connectors", "explain", "job_summary", "runtime.report", "version"},
    "log_scope": set[str](),
    "logs": {"log_scope", "printable"},
    "progress_log": {"errors", "explain", "folders", "graph", "job_configuration", "paths", "progress"}
    | {"runtime_view", "version"},
    "job_configuration": {"connectors", "graph", "job", "sinks", "sources", "version"},
    "job_listener": {"graph", "job", "progress"},
    "watermark_report": {"errors", "explain", "graph", "job_summary", "printable", "progress", "watermark"},
    "job": MODEL | {"arguments", "graph", "job_listener", "progress", "record_table", "watermark_report"},
    "job_options": {"dashboard", "errors", "job"},
    "terminal": {
        "errors",
        "explain",
        "graph",
        "job",
        "job_listener",
        "job_summary",
        "printable",
        "progress",
        "tracebacks",
        "watermark",
    },
    "tracebacks": {"cells", "errors"},
    "unfinished": {"errors", "job"},
    "configurable": MODEL | {"graph"},
    "record_table": {"printable"},
    "streams": MODEL  # imports the local runtime by name
    | {"aggregates", "arguments", "callables", "columnar", "configurable", "extension", "graph"}
    | {"missing_methods", "record_table", "tracebacks"},
    "environment": PLAN
    | {"arguments", "explain", "findings", "job_options", "missing_methods", "streams", "tracebacks", "unfinished"}
    | {"dashboard"},  # when a job asks for it. It imports its runtime by name
    "runtime.__init__": set(),
    "runtime.serde": RUNTIME,
    "runtime.report": RUNTIME
    | {"arguments", "job_summary", "runtime.serde", "unfinished", "watermark_report"}
    | {"terminal"},  # when a notebook shows a job
    "runtime.state": RUNTIME | {"runtime.serde", "runtime.report"},
    "runtime.exchange": RUNTIME | {"runtime.serde", "runtime.report", "runtime.state"},
    "runtime.operator": RUNTIME | RUNTIMES - {"runtime.sources", "runtime.rescale"},
    "runtime.sources": RUNTIME | RUNTIMES - {"runtime.rescale"},
    "runtime.rescale": RUNTIME | {"program"} | RUNTIMES - {"runtime.sources"},
    "program": PLAN | {"folders", "runtime.serde", "runtime.report", "runtime.state"},
    "dead_letters": {"errors", "folders", "graph", "paths", "program", "sources"}
    | {"runtime.serde", "runtime.sources", "runtime.state"},
    "savepoint": {"callables", "context", "errors", "extension", "folders", "graph", "program", "sinks"}
    | {"sources", "state"}
    | {"dead_letters", "paths", "version", "runtime.report", "runtime.serde", "runtime.sources", "runtime.state"},
    "local": RUNTIME
    | RUNTIMES
    | {"arguments", "connectors", "dead_letters", "file_log", "folders", "paths", "program", "progress_log"}
    | {"job_configuration", "runtime_view", "savepoint", "unfinished", "version", "watermark_report"},
    "dashboard": {"arguments", "clock", "dead_letters", "errors", "explain", "folders", "graph", "job"}
    | {
        "job_configuration",
        "job_listener",
        "job_summary",
        "paths",
        "program",
        "progress",
        "progress_log",
        "runtime_view",
        "unfinished",
    }
    | {"watermark", "watermark_report"},
    "cli": {"clock", "dead_letters", "errors", "file_log", "folders", "paths", "program", "savepoint", "version"}
    # to build, run and show pipelines
    | {"dashboard", "environment", "explain", "graph", "job", "progress", "progress_log", "runtime_view", "terminal"}
    | {"printable", "tracebacks", "watermark_report"},
    "__main__": {"cli"},
    "testing": RUNTIME | RUNTIMES | {"arguments", "environment", "local"},
    "runtime_spark": RUNTIME
    | RUNTIMES
    | {"connectors", "dead_letters", "file_log", "folders", "paths", "program", "progress_log", "savepoint"}
    | {"job_configuration", "watermark_report"}
    | {"optional_types", "version"}
    | {"arguments", "arrow", "environment", "streams", "unfinished"},  # converts a stream to a DataFrame
    "__init__": PLAN | {"configurable", "environment", "job_options", "streams", "version"},
}

# The dependencies of the package "dsv2" in pyproject.toml. Spark and its dependencies are an extra.
DEPENDENCIES = {"cloudpickle", "msgspec", "typing_extensions"}
# Package of connectors -> the client libraries that its extras install.
CLIENTS = {
    "files": {"pyarrow"},
    "formats": {"confluent_kafka", "fastavro", "google"},
    "kafka": {"confluent_kafka"},
    "postgres": {"psycopg"},
}
MONITORING = {"opentelemetry", "prometheus_client"}
HEAVY = (
    "pyspark",
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
    return frozenset(found)


def part_of(module: str) -> str:
    top, *rest = module.split(".")
    if top != "dsv2" or not rest:
        return top
    return ".".join(rest[:2]) if rest[0] == "runtime" else rest[0]


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def beyond(allowed: Callable[[Path], Set[str]], imported: Callable[[Path], Set[str]]) -> dict[str, list[str]]:
    """What files import although it is not allowed, by the name of the file."""
    found = {str(file.relative_to(ROOT)): sorted(imported(file) - allowed(file)) for file in FILES}
    return {file: names for file, names in found.items() if names}


def test_own_imports_follow_the_table() -> None:
    def own(file: Path) -> set[str]:
        return {part_of(name) for name in imports(file) if name.startswith("dsv2.")}

    def allowed(file: Path) -> set[str]:
        part = part_of(name_of(file))
        return MAY_IMPORT[part] | {part}

    assert beyond(allowed, own) == {}


def test_dsv2_needs_only_its_dependencies() -> None:
    def packages(file: Path) -> set[str]:
        return {name.partition(".")[0] for name in imports(file)}

    assert beyond(packages_allowed_in, packages) == {}


def packages_allowed_in(file: Path) -> set[str]:
    part = part_of(name_of(file))
    allowed = {*sys.stdlib_module_names, *DEPENDENCIES, "dsv2"}
    if part == "runtime_spark":
        allowed |= {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "runtime_spark"}
    elif part in ("savepoint", "cli", "dead_letters"):
        allowed |= {"pandas", "pyarrow", "pyspark"}  # for a caller that asks for their types
    elif file == ROOT / "dsv2" / "streams" / "base.py":
        allowed |= {"pandas"}  # for the type that to_pandas returns
    elif file == ROOT / "dsv2" / "terminal" / "screen.py":
        allowed |= {"rich"}  # imported if it is installed
    elif part == "dashboard":
        allowed |= {"starlette", "uvicorn"}
    elif part == "arrow":
        allowed |= {"numpy", "pyarrow"}
    elif part == "metrics":
        allowed |= MONITORING
    elif part == "connectors":
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
    assert int(calls) < 140_000  # 116,000 to 125,000, by the folders on the path: about 0.1 s


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
