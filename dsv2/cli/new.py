"""``dsv2 new``: writes a project with a job, its tests, its configuration, a container file and a workflow."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Any

from dsv2.cli.command import Report, add_command
from dsv2.errors import ConfigurationError
from dsv2.version import __version__

# File of the project -> template. In both, $package is the name of the Python package.
_FILES = {
    "$package/__init__.py": None,
    "$package/jobs.py": "jobs.py.txt",
    "tests/__init__.py": None,
    "tests/test_jobs.py": "test_jobs.py.txt",
    "data/orders/first.json": "orders.json",
    "pyproject.toml": "pyproject.toml.txt",
    "dsv2.toml": "dsv2.toml",
    "Dockerfile": "Dockerfile",
    ".github/workflows/ci.yml": "ci.yml",
    ".gitignore": "gitignore",
    "README.md": "README.md",
}
_OWN = {"data", "tests"}


def add_commands(groups: Any) -> None:
    """Add the command to those of ``dsv2``."""
    command = add_command(
        groups,
        "new",
        "write a new project into a new folder",
        "new shop",
        description="Write a project with a job, its tests, its configuration, a container file and a CI workflow.",
    )
    command.add_argument("name", metavar="NAME", help="the name of the project, and of its folder")
    command.set_defaults(run=_new, json=False)


def _new(arguments: argparse.Namespace) -> Report:
    name: str = arguments.name
    package = name.replace("-", "_")
    _check(name, package)
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise ConfigurationError(f"There is already a file or folder {name}. Choose another name.") from error
    names = {"name": name, "package": package, "version": __version__}
    templates = files("dsv2.cli") / "template"
    for target, template in _FILES.items():
        file = folder / Template(target).substitute(names)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = "" if template is None else (templates / template).read_text(encoding="utf-8")
        file.write_text(Template(text).substitute(names), encoding="utf-8")
    job = f"{package}.jobs:totals"
    steps = [f"cd {name}", "pip install --editable . --group test", f"dsv2 check {job}", "pytest", f"dsv2 run {job}"]
    return Report([f"{name} has a project. Next:", *(f"  {step}" for step in steps)])


def _check(name: str, package: str) -> None:
    """Raise ``ConfigurationError`` if the project or its package cannot have this name."""
    if not re.fullmatch("[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigurationError(f"{name!r} is not a name of a project. Use lower-case letters, digits, - and _.")
    if iskeyword(package) or package in _OWN:
        raise ConfigurationError(f"A project cannot be called {name}. Choose another name.")
    if package in sys.stdlib_module_names or find_spec(package) is not None:
        raise ConfigurationError(f"There is already a Python module {package}. Choose another name.")
