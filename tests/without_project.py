"""A Python environment with the dependencies of the project, but without the project itself, like that of a cluster."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

__all__ = ("new_environment", "project_zip")

_ROOT = Path(__file__).parent.parent


def new_environment(folder: Path) -> Path:
    """Create the environment, and return its Python."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Files in a folder that is added this way are not read, so neither is the one that names the project.
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder / "bin" / Path(sys.executable).name


def project_zip(file: Path) -> Path:
    """Write the packages of the project and its examples to a zip file for ``--py-files``."""
    with ZipFile(file, "w") as zipped:
        for package in ("dsv2", "runtime_spark", "examples"):
            for path in sorted((_ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    zipped.write(path, path.relative_to(_ROOT))
    return file
