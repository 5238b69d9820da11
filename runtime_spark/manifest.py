"""The manifest describes the program of a checkpoint. The first start writes it, and every restart is compared with it.

Spark sees only binary state, so it would continue with a program that interprets the state differently.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

from dsv2.errors import IncompatibleCheckpointError
from dsv2.folders import Folder
from dsv2.functions import ProcessFunction
from dsv2.graph import Edge, Exchange, KeySelector, Operator, OperatorKind, Plan
from dsv2.graph.record_types import declared_type
from dsv2.program.checked_json import from_json, to_json
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sources import Source
from dsv2.spi import WrappingFunction
from dsv2.watermark import WatermarkDeclaration
from runtime_spark.class_changes import class_changes, classes_of
from runtime_spark.fingerprint import PYTHON, fingerprint
from runtime_spark.layout import Layout

__all__ = (
    "Manifest",
    "differences",
    "essence",
    "manifest_of",
    "read_checkpoint_id",
    "read_manifest",
    "write_manifest",
)

Manifest: TypeAlias = dict[str, Any]

_MANIFEST_VERSION = 2
_MANIFEST = "dsv2/manifest.json"
_RESTORE = "Restore it from a backup, or start from a new checkpoint_location."
_PARALLELISM = (("parallelism", "its parallelism"), ("max_parallelism", "its max parallelism"))
_SOURCE = OperatorKind.SOURCE.value
_BY_PARALLELISM = {Exchange.FORWARD.value, Exchange.REBALANCE.value}  # the parallelism decides between the two


def manifest_of(plan: Plan, layout: Layout) -> dict[str, Any]:
    """Return the manifest of a plan: what must not change between two starts from one checkpoint, as JSON values."""
    return {
        "manifest_version": _MANIFEST_VERSION,
        "format_version": FORMAT_VERSION,
        "python": PYTHON,
        "job_name": plan.job_name,
        "partitions": layout.partitions,
        "state_layout": layout.state.value,
        "operators": {
            operator.uid: _describe(plan, operator)
            for operator in plan.operators
            if operator.kind is not OperatorKind.SINK
        },
        "watermarks": {identifier: _declared(d) for identifier, d in sorted(plan.declarations.items())},
    }


def _describe(plan: Plan, operator: Operator) -> dict[str, Any]:
    return {
        "kind": operator.kind.value,
        "function": f"{type(operator.body).__module__}.{type(operator.body).__qualname__}",
        "defined_at": operator.location,
        "automatic_uid": operator.automatic_uid,
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "stateless": _is_stateless(plan, operator),
        "inputs": [_input(plan, operator, edge) for edge in plan.edges_into[operator.id]],
        "output_keys": [
            _key(plan, operator, output, select, operator.output_key_version)
            for output, select in enumerate(operator.output_keys)
        ],
        "states": _states(operator),
        "needs_clock": plan.needs_clock(operator),
        "state_layout": operator.body.state_layout if isinstance(operator.body, WrappingFunction) else "",
    }


def _is_stateless(plan: Plan, operator: Operator) -> bool:
    """Whether the subtasks have nothing in the checkpoint, so that a restart may change the parallelism."""
    return isinstance(operator.body, Source) or operator in plan.chained_to_sources


def _states(operator: Operator) -> dict[str, Any]:
    if not isinstance(operator.body, ProcessFunction):
        return {}
    declared = {declaration.name: declaration for declaration in operator.body.uses_states()}
    if isinstance(operator.body, WrappingFunction):
        declared |= {f"{declaration.name} (further)": declaration for declaration in operator.body.further_states()}
    return {
        name: {
            "kind": type(declaration).__name__.removesuffix("Declaration"),
            "type": ", ".join(map(_type_name, declaration.types)),
            "mode": declaration.redistribution_mode.name,
            "time_to_live": declaration.time_to_live is not None,
            "classes": classes_of(declaration.types),
        }
        for name, declaration in declared.items()
    }


def _type_name(form: object) -> str:
    return f"{form.__module__}.{form.__qualname__}" if isinstance(form, type) else str(form)


def _input(plan: Plan, operator: Operator, edge: Edge) -> dict[str, Any]:
    select = operator.input_keys[edge.input]
    return {
        "from": plan.operators[edge.source].uid,
        "from_stateless": _is_stateless(plan, plan.operators[edge.source]),
        "output": edge.output,
        "exchange": edge.exchange.value,
        "key": _key(plan, plan.operators[edge.source], edge.output, select, operator.key_versions[edge.input]),
    }


def _key(
    plan: Plan, sender: Operator, output: int, select: KeySelector | None, version: int | None
) -> dict[str, Any] | None:
    if select is None:
        return None
    return {"digest": fingerprint(select, declared_type(plan, sender, output)), "version": version}


def _declared(declaration: WatermarkDeclaration) -> dict[str, Any]:
    policy = declaration.combination_policy
    return {
        "type": type(declaration).__name__,
        "function": policy.combination_function.name,
        "wait_for_all_channels": policy.combine_wait_for_all_channels,
        "aligned": policy.aligned,
        "across_inputs": policy.combine_across_inputs,
        "strategy": declaration.default_handling_strategy.name,
    }


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List the differences that prevent ``now`` from continuing after ``before``, one sentence each."""
    found = [
        f"it was written with {what} {before[name]}, but this version of dsv2 writes {now[name]}"
        for name, what in (("manifest_version", "manifest version"), ("format_version", "state format"))
        if before[name] != now[name]
    ]
    if found:
        return found
    old, new = before["operators"], now["operators"]
    for uid in old.keys() - new.keys():
        hint = f"; the operator that continues its state needs with_uid({uid!r})" if old[uid]["automatic_uid"] else ""
        found.append(f"operator {uid!r} (defined at {old[uid]['defined_at']}) was removed, or has another uid{hint}")
    for uid in new.keys() - old.keys():
        found.append(f"operator {uid!r} (defined at {new[uid]['defined_at']}) is new, or has another uid")
    found.sort()
    same_python = before["python"] == now["python"]
    for uid in (uid for uid in new if uid in old):
        where = f"operator {uid!r} (defined at {new[uid]['defined_at']})"
        found.extend(f"{where}: {change}" for change in _operator_changes(old[uid], new[uid], same_python))
    sources = [[uid for uid, operator in program.items() if operator["kind"] == _SOURCE] for program in (old, new)]
    if not found and sources[0] != sources[1]:  # Spark identifies them by their order
        was, now_is = map(", ".join, sources)
        found.append(f"the order of the sources was {was} and is now {now_is}")
    old, new = before["watermarks"], now["watermarks"]
    for identifier in sorted(old.keys() | new.keys()):
        found.extend(_watermark_changes(identifier, old.get(identifier), new.get(identifier)))
    if before["state_layout"] != now["state_layout"]:
        found.append(f"the state layout was {before['state_layout']} and is now {now['state_layout']}")
    if not found and before["partitions"] != now["partitions"]:
        found.append(f"the number of state partitions was {before['partitions']} and is now {now['partitions']}")
    return found


def _operator_changes(old: dict[str, Any], new: dict[str, Any], same_python: bool) -> list[str]:
    parallelism = () if old["stateless"] and new["stateless"] else _PARALLELISM
    changes = [
        f"{what} was {old[name]} and is now {new[name]}"
        for name, what in (
            ("kind", "its kind"),
            *parallelism,
            ("needs_clock", "its use of processing-time timers"),  # Spark stores timeouts with the state
            ("state_layout", "the content of its state"),
        )
        if old[name] != new[name]
    ]
    if len(old["inputs"]) != len(new["inputs"]):
        return changes  # the kind has changed, which is in the list
    for number, (before, now) in enumerate(zip(old["inputs"], new["inputs"], strict=True)):
        changes.extend(
            f"{what} of input {number} was {before[name]!r} and is now {now[name]!r}"
            for name, what in (("from", "the origin"), ("output", "the output"), ("exchange", "the partitioning"))
            if before[name] != now[name] and not (name == "exchange" and _may_change(before, now))
        )
        if (change := _key_change(before["key"], now["key"], same_python)) is not None:
            changes.append(f"the key selector of input {number} {change}")
    for name in (name for name in new["states"] if name in old["states"]):  # states may be added and removed
        before, now = old["states"][name], new["states"][name]
        changes.extend(
            f"state {name!r}: its {part.replace('_', ' ')} was {before[part]} and is now {now[part]}"
            for part in before
            if part != "classes" and before[part] != now[part]
        )
        changes.extend(f"state {name!r}: {change}" for change in class_changes(before["classes"], now["classes"]))
    if len(old["output_keys"]) != len(new["output_keys"]):
        return changes  # the kind has changed
    for number, (before, now) in enumerate(zip(old["output_keys"], new["output_keys"], strict=True)):
        if (change := _key_change(before, now, same_python)) is not None:
            changes.append(f"the key selector of output {number} {change}")
    return changes


def _key_change(before: dict[str, Any] | None, now: dict[str, Any] | None, same_python: bool) -> str | None:
    if before is None or now is None:
        return None if before is now else "has changed"
    if now["version"] is not None:
        # The user declares by it that the keys are unchanged. A selector without a version has version 1.
        version = before["version"] or 1
        return None if version == now["version"] else f"was version {version} and is now version {now['version']}"
    if same_python and before["digest"] != now["digest"]:
        return f"has changed; if all keys stay the same, give it version={before['version'] or 1}"
    return None


def _may_change(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the partitioning differs only because the parallelism of a stateless operator has changed."""
    return (
        before["from_stateless"] and now["from_stateless"] and {before["exchange"], now["exchange"]} <= _BY_PARALLELISM
    )


def _watermark_changes(identifier: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    if old is None or new is None:
        return [f"watermark {identifier!r} is {'no longer' if new is None else 'newly'} declared"]
    return [
        f"watermark {identifier!r}: {name.replace('_', ' ')} was {old[name]} and is now {new[name]}"
        for name in old
        if old[name] != new[name]
    ]


def essence(manifest: Manifest) -> Manifest:
    """Return ``manifest`` without the parts that may change freely."""
    operators = {
        uid: {name: value for name, value in operator.items() if name not in ("function", "defined_at")}
        for uid, operator in manifest["operators"].items()
    }
    compared = {name: value for name, value in manifest.items() if name != "checkpoint_id"}
    return compared | {"operators": operators, "job_name": ""}


def read_manifest(checkpoint: Folder) -> Manifest | None:
    """Read the manifest of the first start from ``checkpoint``; None if no micro-batch has begun.

    Raises:
        IncompatibleCheckpointError: The checkpoint is not one of dsv2, or the manifest is damaged.
    """
    manifest = _read(checkpoint)
    begun = checkpoint.numbers("offsets")
    if manifest is None and (begun or checkpoint.read("metadata") is not None):
        raise IncompatibleCheckpointError(
            f"{checkpoint.path} holds a checkpoint, but not one of dsv2 (it has no {_MANIFEST}). "
            f"Use another checkpoint_location."
        )
    return manifest if begun else None  # if none has begun, the start that wrote the manifest failed


def write_manifest(checkpoint: Folder, plan: Plan, layout: Layout, checkpoint_id: UUID) -> None:
    """Write the manifest of ``plan`` before the first start. ``checkpoint_id``: Unique for each checkpoint."""
    manifest = {"checkpoint_id": str(checkpoint_id), **manifest_of(plan, layout)}
    checkpoint.write(_MANIFEST, to_json(manifest))


def read_checkpoint_id(checkpoint: Folder) -> UUID:
    """Return the id of a checkpoint that has a manifest.

    Raises:
        IncompatibleCheckpointError: The manifest is damaged.
    """
    manifest = _read(checkpoint) or {}
    try:
        return UUID(manifest["checkpoint_id"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise IncompatibleCheckpointError(
            f"The manifest {checkpoint.place(_MANIFEST)} is damaged: it has no checkpoint id. {_RESTORE}"
        ) from error


def _read(checkpoint: Folder) -> Manifest | None:
    data = checkpoint.read(_MANIFEST)
    if data is None:
        return None
    place = checkpoint.place(_MANIFEST)
    try:
        manifest = from_json(data)
    except ValueError as error:
        raise IncompatibleCheckpointError(f"The manifest {place} is damaged: {error}. {_RESTORE}") from error
    if not {"manifest_version", "format_version"} <= manifest.keys():
        raise IncompatibleCheckpointError(f"The manifest {place} is damaged: it is not a manifest of dsv2. {_RESTORE}")
    return manifest
