"""A Python environment with the dependencies of the project, but without the project itself, like that of a cluster."""

from __future__ import annotations

import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import ZipFile

from tests import ROOT

PROJECT = ("dsv2", "runtime_spark")
"""The packages of the wheel."""


def new_environment(folder: Path) -> Path:
    """Create the environment, and return its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Files in a folder that is added this way are not read, so neither is the one that names the project.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder / "bin" / Path(sys.executable).name


def project_zip(file: Path, packages: Sequence[str] = (*PROJECT, "examples")) -> Path:
    """Write packages of the project to a zip file, or to a wheel, which is one."""
    with ZipFile(file, "w") as zipped:
        for path, name in _files(packages):
            zipped.write(path, name)
    return file


def environment_archive(file: Path, environment: Path) -> Path:
    """Write an environment to an archive, with the packages of the project installed, as ``venv-pack`` does."""
    (installed,) = environment.glob("lib/python*/site-packages")
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".")
        for path, name in _files((*PROJECT, "examples")):
            archive.add(path, installed.relative_to(environment) / name)
    return file


def _files(packages: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, path.relative_to(ROOT)
