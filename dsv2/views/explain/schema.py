"""The JSON schema of explanations, with descriptions from the docstrings of the model."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import msgspec

from dsv2.plan_view import model
from dsv2.plan_view.finding import Severity
from dsv2.plan_view.model import PlanView
from dsv2.plan_view.runtime_view import Fact

_CLASSES = {**vars(model), "Fact": Fact, "Severity": Severity}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the format ``json``."""
    (schema,), definitions = msgspec.json.schema_components([PlanView], ref_template="#/$defs/{name}")
    for name, definition in definitions.items():
        documented = inspect.getdoc(_CLASSES[name]) or ""
        definition["description"] = documented.partition("\n\n")[0]
        for attribute, text in _ATTRIBUTE.findall(documented):
            definition["properties"][attribute]["description"] = " ".join(text.split())
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A plan of dsv2", **schema}
    plain: dict[str, Any] = json.loads(json.dumps(whole | {"$defs": definitions}))
    return plain
