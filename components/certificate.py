"""A certificate for servers on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ("make_certificate",)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1, and return its file and that of its key. It needs OpenSSL."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    key.chmod(0o644)  # the server may run as another user
    return certificate, key
