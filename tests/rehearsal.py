"""The rehearsal of a release, ``./run wheel --rehearse``: what happens to users and their jobs when it is published.

A fresh environment installs the previous wheel from a local index, as from PyPI. A job begins there and is killed. Then
the environment is upgraded, the job continues from its checkpoint, and dsv2 is uninstalled. Before there is a previous
release, it is this wheel with a lower version.

This module imports the standard library only, as ``tests.wheel`` does.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from zipfile import ZipFile

from tests.wheel import Environment, WheelError

_JOB = "shop.jobs:totals"
_READ = """
import json
from dsv2.connectors.files import read_files
print(json.dumps(read_files("data/totals").to_arrow().to_pylist()))
"""
_BEFORE = [("tea", 2), ("coffee", 5), ("tea", 3)]
_LATER = [("tea", 7), ("coffee", 6)]
_SECONDS_TO_START = 300


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def write_index(folder: Path, *wheels: Path) -> str:
    """Write a package index (PEP 503) with these wheels of dsv2, and return its URL."""
    project = folder / "simple" / "dsv2"
    project.mkdir(parents=True)
    for wheel in wheels:
        shutil.copy(wheel, project)
    links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>\n' for wheel in wheels)
    (project / "index.html").write_text(f"<!doctype html>\n{links}")
    return project.parent.as_uri()


def with_version(wheel: Path, version: str, folder: Path) -> Path:
    """Write a copy of a wheel that has another version."""
    old = version_of(wheel)
    copy = folder / wheel.name.replace(f"-{old}-", f"-{version}-")
    folder.mkdir()
    with ZipFile(wheel) as source, ZipFile(copy, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith((".dist-info/METADATA", ".dist-info/RECORD", "dsv2/version.py")):
                data = data.decode().replace(old, version).encode()
            target.writestr(name.replace(f"dsv2-{old}.dist-info", f"dsv2-{version}.dist-info"), data)
    return copy


def rehearse(wheel: Path, previous: Path | None, work: Path) -> None:
    """Install, upgrade and uninstall. Raises ``WheelError`` if a step fails."""
    before = with_version(wheel, "0.0.1", work / "previous") if previous is None else previous
    index = write_index(work, before, wheel)
    environment = Environment.create(work / "rehearsal")
    shop = work / "shop"

    def install(one: Path) -> None:
        environment.install("--upgrade", "--extra-index-url", index, f"dsv2[files]=={version_of(one)}", cwd=work)
        printed = environment.run("dsv2", "--version", cwd=work).strip()
        _expect("dsv2 --version", printed, f"dsv2 {version_of(one)}")

    install(before)
    environment.run("dsv2", "new", "shop", cwd=work)
    _run_until_killed(environment, shop)
    install(wheel)
    environment.python("-m", "pip", "check", cwd=work)
    (shop / "data/orders/second.json").write_text(
        '{"product": "tea", "amount": 4}\n{"product": "coffee", "amount": 1}\n'
    )
    environment.run("dsv2", "run", "--available-now", _JOB, cwd=shop)
    rows = json.loads(environment.python("-c", _READ, cwd=shop))
    totals = [(row["product"], row["amount"]) for row in rows]
    _expect("The totals of the job", totals, [*_BEFORE, *_LATER])
    environment.python("-m", "pip", "uninstall", "--yes", "--quiet", "dsv2", cwd=work)
    left = [
        str(file) for name in ("dsv2*", "runtime_spark*", "pytest_dsv2*") for file in environment.folder.rglob(name)
    ]
    _expect("What the uninstallation leaves", left, [])


def _run_until_killed(environment: Environment, shop: Path) -> None:
    """Run the job until it has written its first results, and kill it."""
    job = environment.start("dsv2", "run", _JOB, cwd=shop)
    deadline = time.monotonic() + _SECONDS_TO_START
    try:
        while not list((shop / "data/totals").glob("*.parquet")):
            if job.poll() is not None or time.monotonic() > deadline:
                raise WheelError(f"The job has written nothing. Its exit code is {job.poll()}.")
            time.sleep(0.1)
    finally:
        job.kill()
        job.wait()


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WheelError(f"{what}: {found}, and not {expected}.")
