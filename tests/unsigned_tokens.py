"""Tokens without a signature, which the broker of the tests accepts, as a program would get them from a service."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field


def encoded(claims: dict[str, object]) -> str:
    """A JSON Web Token without a signature."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])


@dataclass
class UnsignedTokens:
    """Returns tokens that are valid for some seconds, and keeps them. Tokens of the ``user`` "" are rejected."""

    user: str = "dsv2"
    seconds: float = 600.0
    issued: list[str] = field(default_factory=list)

    def __call__(self, config: str) -> tuple[str, float]:
        now = time.time()
        token = encoded({"sub": self.user, "iat": now, "exp": now + self.seconds, "jti": f"{config}{len(self.issued)}"})
        self.issued.append(token)
        return token, now + self.seconds
