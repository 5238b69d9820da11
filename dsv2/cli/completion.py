"""Shell completion, by the package shtab."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

_SHELLS = ("bash", "zsh")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--print-completion`` to the parser of ``dsv2``."""
    parser.add_argument(
        "--print-completion", action=_Print, choices=_SHELLS, help="print the completion of this command for a shell"
    )


class _Print(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options, default=argparse.SUPPRESS)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        try:
            shtab = import_module("shtab")
        except ImportError:
            parser.exit(2, "dsv2: Completion requires shtab. Install it with: pip install 'dsv2[cli]'\n")
        print(shtab.complete(parser, str(values)))
        parser.exit()
