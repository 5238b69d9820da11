"""Calls of libraries at the edges, with the arguments that decide about values: none is left to a default."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

# Function -> the keywords that each call must have. Their defaults change values without an error: they drop the zone
# or the unit of times, cut or escape texts, accept damaged bytes, or depend on the process.
REQUIRED: dict[str, set[str]] = {
    "csv.reader": {"delimiter", "quotechar", "doublequote", "escapechar", "skipinitialspace", "quoting", "strict"},
    "csv.writer": {"lineterminator", "quoting", "doublequote"},
    "pq.ParquetFile": {"coerce_int96_timestamp_unit"},
    "pq.write_table": {"coerce_timestamps"},
    "b64decode": {"validate"},
    "base64.b64decode": {"validate"},
    "msgspec.json.Encoder": {"enc_hook", "decimal_format", "uuid_format", "order"},
    "msgspec.json.Decoder": {"strict"},
    "partial(schemaless_reader)": {"handle_unicode_errors", "return_record_name", "return_named_type"},
    "partial(schemaless_writer)": {"strict", "strict_allow_default", "disable_tuple_notation"},
    "pa.Table.from_pandas": {"preserve_index"},
    "pa.ipc.IpcWriteOptions": {"compression"},
    "psycopg.connect": {"autocommit", "context", "prepare_threshold"},
    "TextIOWrapper": {"errors", "newline"},
}
# Method -> the keywords, or the number of positional arguments, that each call must have.
REQUIRED_OF_METHODS: dict[str, set[str] | int] = {
    "quantize": {"context"},
    "to_pandas": {"integer_object_nulls"},
    "read_text": {"encoding"},
    "write_text": {"encoding"},
    "fromtimestamp": 2,  # with a zone; without one it is that of the process
    "utcfromtimestamp": 99,  # has no zone
}
# The zone of the process is meant here: docs/files.md describes it.
ZONE_OF_THE_PROCESS = {"dsv2/connectors/files/record_writer.py"}


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for package in ("dsv2", "runtime_spark"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func)
                    if name == "partial" and node.args:
                        name = f"partial({ast.unparse(node.args[0])})"
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", name, node


CALLS = list(calls())


@pytest.mark.parametrize("function", REQUIRED)
def test_functions_are_called_with_what_decides_about_values(function: str) -> None:
    found = [(place, {keyword.arg for keyword in call.keywords}) for place, name, call in CALLS if name == function]
    assert found, f"{function} is not called any more: remove it from the table"
    assert [(place, REQUIRED[function] - keywords) for place, keywords in found if REQUIRED[function] - keywords] == []


@pytest.mark.parametrize("method", REQUIRED_OF_METHODS)
def test_methods_are_called_with_what_decides_about_values(method: str) -> None:
    required, lacking = REQUIRED_OF_METHODS[method], []
    for place, _, call in CALLS:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != method:
            continue
        given = {keyword.arg for keyword in call.keywords}
        if len(call.args) < required if isinstance(required, int) else required - given:
            lacking.append(place)
    assert lacking == []


def test_times_do_not_get_the_zone_of_the_process() -> None:
    found = [
        place
        for place, _, call in CALLS
        if isinstance(call.func, ast.Attribute) and call.func.attr == "astimezone" and not call.args
    ]
    assert {Path(place.rpartition(":")[0]).as_posix() for place in found} <= ZONE_OF_THE_PROCESS


def test_text_files_have_an_encoding() -> None:
    lacking = []
    for place, name, call in CALLS:
        modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        is_text = any(set(mode) <= set("rwax+t") and mode for mode in modes)
        if (name == "open" or name.endswith(".open")) and is_text:
            lacking += [place] if "encoding" not in {keyword.arg for keyword in call.keywords} else []
    assert lacking == []
