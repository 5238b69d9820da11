"""The description of the requests for programs, in OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec

from dsv2.jobs.live_state import ARROW_STREAM, DEFAULT_ROWS, MOST_ROWS, StateInfo
from dsv2.version import __version__
from dsv2.views.dashboard.actions import PolicyBody, ReplayBody, SavepointBody
from dsv2.views.dashboard.live_state import QueryBody

_Json: TypeAlias = Mapping[str, Any]

_BODIES: Mapping[str, tuple[str, type | None]] = {
    "stop": ("Stop the job after the running micro-batch", None),
    "savepoint": ("Take a savepoint", SavepointBody),
    "replay": ("Process dead letters again. The job begins again from its checkpoint", ReplayBody),
    "error-policy": ("Change an error policy. The job begins again from its checkpoint", PolicyBody),
}
_TYPES = (StateInfo, QueryBody, SavepointBody, ReplayBody, PolicyBody)
_TEXT: Final = {"type": "string"}
_STATUSES = ["starting", "running", "restarting", "finished", "stopped", "failed", "stored"]
_JOB = {
    "type": "object",
    "required": ["id", "name", "status", "revision"],
    "properties": {
        "id": _TEXT,
        "name": _TEXT,
        "status": {"type": "string", "enum": _STATUSES},
        "revision": {"type": "integer"},
    },
}
_ROWS = {
    "type": "object",
    "required": ["batch_id", "more", "rows"],
    "properties": {
        "batch_id": {"type": "integer", "description": "The last committed micro-batch"},
        "more": {"type": "boolean", "description": "Whether there are more rows than the limit"},
        "rows": {"type": "array", "items": {"type": "object"}},
    },
}
_MESSAGE = {"type": "object", "required": ["message"], "properties": {"message": _TEXT}}


def description() -> _Json:
    """Return the description."""
    schemas, components = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    reference = dict(zip(_TYPES, schemas, strict=True))
    states = {"type": "array", "items": reference[StateInfo]}
    rows = {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}}
    paths: dict[str, _Json] = {
        "/api/jobs": {"get": _operation("The jobs", {"type": "array", "items": _JOB}, [], ())},
        "/api/jobs/{job}/states": {"get": _operation("The states that can be read", states, [_job()], (403, 501))},
        "/api/jobs/{job}/rows": {
            "get": _operation("Rows of a state", _ROWS, [_job(), *_of_rows()], (400, 403, 501), rows)
        },
    }
    query = _operation("The result of a query in SQL", _ROWS, [_job()], (400, 403, 408, 413, 501), rows)
    query["requestBody"] = {"required": True, "content": _content(reference[QueryBody])}
    paths["/api/jobs/{job}/sql"] = {"post": query}
    for action, (summary, kind) in _BODIES.items():
        operation = _operation(summary, _MESSAGE, [_job()], (400, 403, 408, 413))
        if action == "stop":
            operation["responses"]["202"] = operation["responses"].pop("200")
        if kind is not None:
            operation["requestBody"] = {"required": True, "content": _content(reference[kind])}
        paths[f"/api/jobs/{{job}}/{action}"] = {"post": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jobs of dsv2", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(
    summary: str, answer: _Json, parameters: list[_Json], refusals: tuple[int, ...], others: _Json | None = None
) -> dict[str, Any]:
    of_job = (404, 409) if parameters else ()
    return {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": summary, "content": {**_content(answer), **(others or {})}},
            "401": {
                "description": "There is no token, or another one",
                "content": {"text/plain": {"schema": _TEXT}},
            },
            **{
                str(status): {"description": HTTPStatus(status).phrase, "content": _content(_MESSAGE)}
                for status in (*refusals, *of_job)
            },
        },
    }


def _content(schema: _Json) -> _Json:
    return {"application/json": {"schema": schema}}


def _job() -> _Json:
    return {"name": "job", "in": "path", "required": True, "schema": _TEXT, "description": "The id of the job"}


def _of_rows() -> list[_Json]:
    keys = {"key": "The only key", "start": "The first key of a range", "stop": "The end of a range, not a part of it"}
    named = {"operator": "The uid of the operator", "state": "The name of the state"}
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": DEFAULT_ROWS}
    return [
        *(
            {"name": name, "in": "query", "required": True, "schema": _TEXT, "description": text}
            for name, text in named.items()
        ),
        *(
            {"name": name, "in": "query", "schema": _TEXT, "description": f"{text}, as JSON"}
            for name, text in keys.items()
        ),
        {"name": "limit", "in": "query", "schema": limit, "description": "The maximum number of rows"},
    ]
