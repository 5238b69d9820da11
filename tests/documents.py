"""Programs in the documents: all Python blocks of a document are one program."""

from __future__ import annotations
