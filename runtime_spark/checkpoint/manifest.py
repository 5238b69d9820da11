"""The manifest of a checkpoint: the program of the first start, and its layout on Spark.

The first start writes it, and every restart is compared with it. Spark sees only binary state, so it would continue
with a program that interprets the state differently.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.folder_kinds import LOCAL_FILES
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Plan
from runtime_spark.frames.layout import Layout

Manifest: TypeAlias = dict[str, Any]
"""As JSON values: ``manifest_version``, ``checkpoint_id``, ``program`` (its description) and ``layout``."""

_MANIFEST_VERSION = 3
_MANIFEST = "dsv2/manifest.json"
_RESTORE = "Restore it from a backup, or start from a new checkpoint_location."


def manifest_of(plan: Plan, layout: Layout) -> Manifest:
    """Return the manifest of a plan: what must not change between two starts from one checkpoint."""
    described: dict[str, Any] = {"partitions": layout.partitions, "state": layout.state.value}
    if any(layout.dataframes):
        described["dataframes"] = [list(operators) for operators in layout.dataframes]
    return {"manifest_version": _MANIFEST_VERSION, "layout": described, "program": describe(plan)}


def layout_differences(before: Manifest, now: Manifest) -> list[Difference]:
    """List the differences of the layout on Spark. A savepoint depends only on the DataFrames."""
    old, new = before["layout"], now["layout"]
    found = [
        Difference(what, f"the {what} was {old[name]} and is now {new[name]}", carried=True)
        for name, what in (("state", "state layout"), ("partitions", "number of state partitions"))
        if old[name] != new[name]
    ]
    if (was := old.get("dataframes", [])) != (is_now := new.get("dataframes", [])):
        what = "operators of Spark with state in the DataFrames that records pass through"
        found.append(Difference("DataFrames", f"the {what} were {was} and are now {is_now}", carried=not any(was)))
    return found


def has_spark_state(manifest: Manifest) -> bool:
    """Return whether Spark has state in a DataFrame that records of the job pass through. No savepoint contains it."""
    return any(manifest["layout"].get("dataframes", ()))


def read_manifest(checkpoint: Folder) -> Manifest | None:
    """Read the manifest of the first start from ``checkpoint``; None if no micro-batch has begun.

    Raises:
        IncompatibleCheckpointError: The checkpoint is not one of dsv2, or the manifest is damaged.
    """
    manifest = _read(checkpoint)
    begun = checkpoint.numbers("offsets")
    if checkpoint.sizes(LOCAL_FILES):
        raise IncompatibleCheckpointError(
            f"{checkpoint.path} is the checkpoint of a job in the local runtime. To continue that job on Spark, take a "
            f"savepoint of it, and start with savepoint=... and a new checkpoint_location."
        )
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


def checkpoint_id_of(checkpoint: Folder, manifest: Manifest) -> UUID:
    """Return the id of ``checkpoint``, which has this manifest.

    Raises:
        IncompatibleCheckpointError: The manifest is damaged.
    """
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
    if "manifest_version" not in manifest:
        raise IncompatibleCheckpointError(f"The manifest {place} is damaged: it is not a manifest of dsv2. {_RESTORE}")
    if manifest["manifest_version"] != _MANIFEST_VERSION:
        raise IncompatibleCheckpointError(
            f"The manifest {place} has version {manifest['manifest_version']}, but this version of dsv2 reads and "
            f"writes version {_MANIFEST_VERSION}. Continue with the version of dsv2 that wrote it, or start from a new "
            f"checkpoint_location."
        )
    return manifest
