"""Checkpoint files that may be managed as those of a local disk."""

from __future__ import annotations

import pytest

from dsv2.base.folders import LocalFolder
from runtime_spark.frames.session import all_see

SHARED = ["/mnt/shared", " /data/ "]


@pytest.mark.parametrize(
    ("master", "path", "seen"),
    [
        ("local", "/any", True), ("local[2]", "/any", True), ("local[2,4]", "/any", True),
        ("local-cluster[2,1,1024]", "/any", False), ("spark://host:7077", "/any", False),
        ("yarn", "/mnt/shared/checkpoint", True), ("yarn", "/mnt/shared", True), ("yarn", "/data/a", True),
        ("yarn", "/mnt/shared2", False), ("k8s://host", "/", False), ("", "/any", False),
    ],
)  # fmt: skip
def test_folders_that_all_machines_see(master: str, path: str, seen: bool) -> None:
    assert all_see(LocalFolder(path), master, SHARED) is seen


def test_no_folder_is_declared() -> None:
    assert not all_see(LocalFolder("/any"), "yarn", [""])
