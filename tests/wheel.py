"""``./run wheel``: build the wheel, install it into a fresh environment, and use it as users do.

A user has the wheel and the documents. The examples are not part of the wheel, but they need no more than it does, so
they are copied. This checks, in an empty directory and with nothing of the checkout on the path:

* what the wheel contains, and that its license files and type information are there;
* that the program in the README runs and prints what the README says;
* that the command ``dsv2`` is installed, and that the server of the dashboard has its page;
* that a new project passes its check and its tests, on both runtimes;
* that the hot topics example runs on Spark;
* with ``--rehearse``, that it upgrades the previous wheel (``tests.rehearsal``);
* with ``--suites``, the property tests and the conformance programs on the local runtime.

This module imports the standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.documents import documented_output, program_of

_EXTRAS = "spark,map-state,kafka,postgres,avro,protobuf,schema-registry,dashboard"
_PACKAGES = {"dsv2", "pytest_dsv2.py", "runtime_spark"}
_FILES = ("dsv2/py.typed", "runtime_spark/py.typed", "licenses/LICENSE", "licenses/NOTICE", "METADATA")
_STATIC = "dsv2/views/dashboard/static"
_IMPORTED = "import dsv2, importlib.metadata as m; assert m.version('dsv2') == dsv2.__version__; print(dsv2.__file__)"
_PAGE = """
from urllib.request import urlopen
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import DashboardServer
print(urlopen(DashboardServer(Dashboard(0)).url).read().decode())
"""
_SUITES = ("tests/property", "tests/conformance/test_local.py")
_FOLDERS_OF_SUITES = ("tests", "examples", "components", "benchmarks", "storms", "docs")
_FILES_OF_SUITES = ("pyproject.toml", "README.md")


class WheelError(Exception):
    """The wheel is incomplete, contains unexpected files, or does not work."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, used as if it had been activated."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Environment:
        venv.create(folder, with_pip=True)
        return cls(folder)

    def python(self, *arguments: str, cwd: Path) -> str:
        """Run this environment's Python and return its output. Raises ``WheelError`` if it fails."""
        return self.run("python", *arguments, cwd=cwd)

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        """Run a program of this environment and return its output. Raises ``WheelError`` if it fails."""
        process = self.start(program, *arguments, cwd=cwd)
        printed, _ = process.communicate()
        if process.returncode != 0:
            raise WheelError(f"{program} {' '.join(arguments)} failed with exit code {process.returncode}:\n{printed}")
        return printed

    def start(self, program: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
        """Start a program of this environment."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{variables['PATH']}"
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.Popen(command, cwd=cwd, env=variables, stdout=subprocess.PIPE, text=True)

    def install(self, *requirements: str, cwd: Path) -> None:
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements, cwd=cwd)


def build_wheel(work: Path) -> Path:
    """Build the source distribution, and the wheel from it. Return the wheel."""
    environment = Environment.create(work / "build-env")
    environment.install("build>=1.2", cwd=work)
    environment.python("-m", "build", "--outdir", str(work / "dist"), str(ROOT), cwd=work)
    (wheel,) = (work / "dist").glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Raise ``WheelError`` if a file is missing or unexpected."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if packages != _PACKAGES:
        raise WheelError(f"{wheel.name} installs {sorted(packages)}, and should install {sorted(_PACKAGES)}.")
    page = [file.relative_to(ROOT).as_posix() for file in sorted((ROOT / _STATIC).iterdir())]
    missing = [file for file in (*_FILES, *page) if not any(name.endswith(file) for name in names)]
    if missing:
        raise WheelError(f"{wheel.name} lacks {', '.join(missing)}.")


def _run_readme(environment: Environment, work: Path) -> None:
    readme = program_of(ROOT / "README.md")
    program = work / "readme.py"
    program.write_text(readme)
    printed = environment.python(str(program), cwd=work).splitlines()
    if printed != documented_output(readme):
        raise WheelError(f"The program in the README prints {printed}, and says {documented_output(readme)}.")


def _run_command(environment: Environment, work: Path) -> None:
    printed = environment.run("dsv2", "--version", cwd=work)
    if not printed.startswith("dsv2 "):
        raise WheelError(f"The command dsv2 prints {printed!r}.")
    if "<!doctype html>" not in environment.python("-c", _PAGE, cwd=work):
        raise WheelError("The server of the dashboard does not have its page.")


def _run_new_project(environment: Environment, work: Path) -> None:
    environment.run("dsv2", "new", "shop", cwd=work)
    environment.run("dsv2", "check", "--strict", "--no-types", "shop.jobs:totals", cwd=work / "shop")
    environment.install("pytest", cwd=work)
    environment.python("-m", "pytest", "-q", cwd=work / "shop")


def _run_example(environment: Environment, work: Path) -> None:
    shutil.copytree(ROOT / "examples", work / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    environment.install("--group", f"{ROOT / 'pyproject.toml'}:examples", cwd=work)
    printed = environment.python("-m", "examples.hot_topics", cwd=work)
    print(printed)
    if " hot events in " not in printed:
        raise WheelError("The hot topics example has not reported what it found.")


def _run_suites(environment: Environment, work: Path) -> None:
    for folder in _FOLDERS_OF_SUITES:
        ignored = shutil.ignore_patterns("__pycache__", "results")
        shutil.copytree(ROOT / folder, work / folder, ignore=ignored, dirs_exist_ok=True)
    for file in _FILES_OF_SUITES:
        shutil.copy(ROOT / file, work)
    environment.install("--group", "pyproject.toml:test", cwd=work)
    print(environment.python("-m", "pytest", "-q", "-m", "not spark", *_SUITES, cwd=work))


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if the wheel passes."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="wheel-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        try:
            _check(options, work)
        except WheelError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _check(options: argparse.Namespace, work: Path) -> None:
    wheel: Path = options.wheel.resolve() if options.wheel else build_wheel(work)
    check_contents(wheel)
    if options.rehearse:
        from tests.rehearsal import rehearse  # imports this module

        rehearse(wheel, options.previous, work)
        print(f"{wheel.name} upgrades a job, and is uninstalled.", flush=True)
    environment, user = Environment.create(work / "env"), work / "user"
    user.mkdir()
    environment.install("pip>=25.1", cwd=user)  # supports dependency groups
    environment.install(f"dsv2[{_EXTRAS}] @ {wheel.as_uri()}", *options.require, cwd=user)
    environment.python("-m", "pip", "check", cwd=user)
    if not environment.python("-c", _IMPORTED, cwd=user).startswith(str(environment.folder.resolve())):
        raise WheelError("dsv2 was not imported from the environment.")
    _run_readme(environment, user)
    _run_command(environment, user)
    _run_new_project(environment, user)
    print(f"{wheel.name}: the program in the README and a new project run.", flush=True)
    _run_example(environment, user)
    if options.suites:
        _run_suites(environment, user)
    if options.keep:
        shutil.copy(wheel, options.keep)
    print(f"{wheel.name} works.")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./run wheel",
        description="Build the wheel, install it with its extras into a fresh environment, and run the program of the "
        "README and the hot topics example there, in a directory without the checkout. Takes some minutes.",
    )
    add = parser.add_argument
    add("--wheel", type=Path, metavar="FILE", help="check this wheel instead of building one")
    add("--require", action="append", default=[], metavar="SPEC", help="install this as well, e.g. 'pyspark==4.2.*'")
    add("--rehearse", action="store_true", help="also upgrade a job to it, from an index, and uninstall it")
    add("--previous", type=Path, metavar="FILE", help="the wheel that --rehearse upgrades (default: this one)")
    add("--suites", action="store_true", help="also run the property tests and the conformance programs, locally")
    add("--keep", type=Path, metavar="DIR", help="copy the wheel into this existing directory")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
