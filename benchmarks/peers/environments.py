"""The environments of contestants, with their packages, separate from the project's environment.

They are created on first use in ``dsv2-benchmarks`` in the user's cache directory (``$XDG_CACHE_HOME`` or
``~/.cache``), which may be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ("BYTEWAX", "BYTEWAX_WITH_OWN", "FLINK", "OWN", "PROTOBUF", "PYFLINK", "Environment", "Unavailable")

_ROOT = Path(__file__).resolve().parent.parent.parent
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsv2-benchmarks"
_JAVA_SOURCES = Path(__file__).resolve().parent / "flink"


class Unavailable(Exception):  # noqa: N818 - a result rather than an error
    """An environment cannot be created on this machine. The message has the reason."""


class Environment(Protocol):
    """The environment of a contestant's programs."""

    def exists(self) -> bool:
        """Return whether the environment has been created."""
        ...

    def make(self) -> None:
        """Create the environment unless it exists. Raises ``Unavailable``."""
        ...

    def command(self, job: str, program: str) -> list[str]:
        """The command that starts a program, without its arguments."""
        ...

    def variables(self) -> dict[str, str]:
        """The environment variables of the program."""
        ...


@dataclass(frozen=True)
class Own:
    """The project's environment, optionally with additional packages in a separate directory."""

    name: str = ""
    packages: tuple[str, ...] = ()

    def exists(self) -> bool:
        return not self.packages or _is_made(self.name, self.packages)

    def make(self) -> None:
        if not self.exists():
            _install(sys.executable, self.name, self.packages, "--target", str(_CACHE / self.name))

    def command(self, job: str, program: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.peers", f"{job}.{program}"]

    def variables(self) -> dict[str, str]:
        folders = [str(_ROOT), *([str(_CACHE / self.name)] if self.packages else [])]
        return {"PYTHONPATH": os.pathsep.join(folders), "PYSPARK_PYTHON": sys.executable}


@dataclass(frozen=True)
class Venv:
    """A separate virtual environment."""

    name: str
    packages: tuple[str, ...]

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return str(_CACHE / self.name / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    def exists(self) -> bool:
        return _is_made(self.name, self.packages)

    def make(self) -> None:
        if not self.exists():
            venv.create(_CACHE / self.name, clear=True, with_pip=True)
            _install(self.python, self.name, self.packages)

    def command(self, job: str, program: str) -> list[str]:
        return [self.python, "-m", "benchmarks.peers", f"{job}.{program}"]

    def variables(self) -> dict[str, str]:
        # An interpreter embedded in Flink's process does not detect the venv, so PYTHONPATH contains its packages.
        packages = sysconfig.get_path("purelib", "venv", {"base": str(_CACHE / self.name)})
        return {"PYTHONPATH": os.pathsep.join([str(_ROOT), packages])}


@dataclass(frozen=True)
class Java:
    """The jars of a Python package, and the programs in ``flink/`` compiled against them."""

    name: str
    packages: tuple[str, ...]
    options: tuple[str, ...]

    def exists(self) -> bool:
        return _is_made(self.name, self.packages) and self._classes().exists()

    def make(self) -> None:
        if not _is_made(self.name, self.packages):
            _install(sys.executable, self.name, self.packages, "--no-deps", "--target", str(_CACHE / self.name))
        if not self._classes().exists():
            self._compile()

    def command(self, job: str, program: str) -> list[str]:
        path = os.pathsep.join([str(self._classes()), self._jars()])
        return [_tool("java"), *self.options, "-cp", path, f"peers.{program}"]

    def variables(self) -> dict[str, str]:
        return {}

    def _jars(self) -> str:
        return str(_CACHE / self.name / "pyflink" / "lib" / "*")

    def _classes(self) -> Path:
        content = b"".join(source.read_bytes() for source in sorted(_JAVA_SOURCES.glob("*.java")))
        return _CACHE / self.name / f"classes-{hashlib.sha256(content).hexdigest()[:12]}"

    def _compile(self) -> None:
        sources = sorted(map(str, _JAVA_SOURCES.glob("*.java")))
        making = self._classes().with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        _run([_tool("javac"), "-nowarn", "-d", str(making), "-cp", self._jars(), *sources], "javac")
        making.rename(self._classes())


def _tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else None
    found = found or shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} was not found; install a JDK (17 or 21)")
    return found


def _is_made(name: str, packages: Sequence[str]) -> bool:
    stamp = _CACHE / f"{name}.stamp"  # written last, with the installed packages
    return stamp.exists() and stamp.read_text() == " ".join(packages)


def _install(python: str, name: str, packages: Sequence[str], *options: str) -> None:
    print(f"Installing {', '.join(packages)} for the benchmarks ...", file=sys.stderr)
    _CACHE.mkdir(parents=True, exist_ok=True)
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--upgrade",
        *options,
        *packages,
    ]
    _run(command, f"pip install {' '.join(packages)}")
    (_CACHE / f"{name}.stamp").write_text(" ".join(packages))


def _run(command: list[str], what: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        errors = [
            line for line in run.stderr.splitlines() if line.strip() and not line.startswith(("WARNING", "[notice]"))
        ]
        raise Unavailable(f"{what} failed: {errors[-1] if errors else run.returncode}")


OWN = Own()
PROTOBUF = Own("protobuf", ("protobuf",))  # required by PySpark's transformWithState only
BYTEWAX = Venv("bytewax", ("bytewax==0.21.1", "cloudpickle", "typing-extensions"))
BYTEWAX_WITH_OWN = Own("bytewax-with-own", ("bytewax==0.21.1",))  # for events that the project generates
PYFLINK = Venv("pyflink", ("apache-flink==2.3.0",))
FLINK = Java(
    "flink",
    ("apache-flink-libraries==2.3.0",),
    (
        "-Xmx4g",
        "--add-opens=java.base/java.util=ALL-UNNAMED",  # both as in Flink's start script
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Dlog4j2.level=ERROR",
    ),
)
