"""Jars that Maven downloads into its repository in the home directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import zlib
from pathlib import Path

from components.server import MissingComponentError

__all__ = ("maven_classpath",)

_RESOLVER = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"


def maven_classpath(pom: Path, what: str) -> str:
    """Return the class path of the dependencies in ``pom``. The first call downloads them.

    Args:
        pom: The project file.
        what: What requires them, for errors: ``"A Kafka broker"``.

    Raises:
        MissingComponentError: Maven is not installed, or it could not download the jars.
    """
    name = pom.stem.removesuffix("-pom")
    known = Path.home() / ".m2" / f"dsv2-{name}-{zlib.crc32(pom.read_bytes()):08x}.classpath"
    if not _is_complete(known):
        if shutil.which("mvn") is None:
            raise MissingComponentError(
                f"{what} requires Maven, and there is no mvn on the PATH. Install it (apt-get install maven, "
                f"dnf install maven, brew install maven), or run ./run kafka, which installs it."
            )
        known.parent.mkdir(exist_ok=True)
        with known.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # parts of a test run need the same jars
            if not _is_complete(known):
                _download(pom, known, what)
    return known.read_text()


def _is_complete(known: Path) -> bool:
    return known.exists() and all(map(os.path.exists, known.read_text().split(os.pathsep)))


def _download(pom: Path, known: Path, what: str) -> None:
    partial = known.with_suffix(".partial")
    command = ["mvn", "-q", "-B", "-f", str(pom), _RESOLVER, f"-Dmdep.outputFile={partial}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise MissingComponentError(
            f"{what} requires jars that Maven could not download. Check the network connection and the free space on "
            f"the disk. Maven's output:\n{run.stdout[-2000:]}"
        )
    partial.rename(known)
