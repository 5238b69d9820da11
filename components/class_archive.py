"""An archive of Spark's classes, from which the JVMs of tests load them faster (class data sharing).

``python -m components.class_archive`` makes it if it does not exist. ``./run test`` does that before all tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from components.python_path import python_path

__all__ = ("JVM_OPTIONS", "jvm_options")

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Dspark.buffer.pageSize=1m"
"""Options for JVMs that end before optimized code would pay for its compilation, and that sort few rows.

Without optimized code, the JVM reserves only 48 MB for compiled code. A long test run fills them, and then the JVM
discards code and compiles it again, all the time. The page size is what each sort allocates first. Spark's default is
64 MB with 4 GB of memory and two cores.
"""

_JOB = ("examples.hot_topics", "--tweets", "2000")  # loads most of what other jobs load


def jvm_options() -> str:
    """Return the options for the JVMs of tests: ``JVM_OPTIONS``, with the archive if it exists."""
    archive = _archive()
    if archive is None or not archive.exists():
        return JVM_OPTIONS
    # The JVM ignores an archive of other jars, which it would log.
    return f"{JVM_OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _archive() -> Path | None:
    """The place of the archive for the Java in JAVA_HOME. None: it is unknown, or cannot be passed to a JVM."""
    release = Path(os.environ.get("JAVA_HOME", "/nowhere"), "release")
    found = re.search(r'^JAVA_RUNTIME_VERSION="(.+)"$', release.read_text(), re.MULTILINE) if release.exists() else None
    if found is None or " " in sys.prefix:  # Spark splits the options at spaces
        return None
    return Path(sys.prefix, f"spark-{version('pyspark')}-java-{found[1]}.jsa")


def main() -> None:
    """Run a job in a JVM that writes the archive when it ends."""
    archive = _archive()
    if archive is None or archive.exists():
        return
    print("Archiving Spark's classes, so that its JVMs start faster ...", file=sys.stderr)
    partial = archive.with_suffix(".partial")
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={partial}",
    }
    with TemporaryDirectory() as folder:
        # The JVM ends after the program. Until then it keeps the pipe open.
        command = [sys.executable, "-m", *_JOB, "--work-dir", folder]
        subprocess.run(command, env=environment, capture_output=True, check=False)
    if partial.exists():
        partial.rename(archive)


if __name__ == "__main__":
    main()
