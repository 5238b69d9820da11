"""Jars that come through Maven, into its own folder below the home directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from pathlib import Path

from components.server import MissingComponentError

__all__ = ("maven_classpath",)

_RESOLVER = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"


def maven_classpath(pom: Path, what: str) -> str:
    """The jars that ``pom`` names, as a class path; got from the network the first time.

    ``what`` they are: "A Kafka broker". Raises ``MissingComponentError`` if there is no Maven, or no way to the jars.
    """
    name = pom.stem.removesuffix("-pom")
    known = Path.home() / ".m2" / f"dsv2-{name}-{zlib.crc32(pom.read_bytes()):08x}.classpath"
    if known.exists() and all(map(os.path.exists, known.read_text().split(os.pathsep))):
        return known.read_text()
    if shutil.which("mvn") is None:
        raise MissingComponentError(
            f"{what} comes through Maven, and there is no mvn on the PATH. Install it (apt-get install maven, "
            f"dnf install maven, brew install maven), or let ./run do so: ./run kafka."
        )
    known.parent.mkdir(exist_ok=True)
    partial = known.with_suffix(f".{os.getpid()}")
    command = ["mvn", "-q", "-B", "-f", str(pom), _RESOLVER, f"-Dmdep.outputFile={partial}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise MissingComponentError(
            f"{what} comes through Maven, which could not get the jars. Is its repository in reach, and room on the "
            f"disk? It said:\n{run.stdout[-2000:]}"
        )
    partial.rename(known)
    return known.read_text()
