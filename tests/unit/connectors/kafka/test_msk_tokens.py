"""The function of the documentation that signs tokens for Amazon MSK."""

from __future__ import annotations

import base64
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dsv2.connectors.kafka.tokens import TokenSource
from tests import ROOT

pytest.importorskip("aws_msk_iam_sasl_signer")
SECRET = "hush/hush"


def test_token_is_a_signed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "connectors.md").read_text(encoding="utf-8")
    text = page[page.index("def msk_token") : page.index("def event_hubs_token")]
    names: dict[str, Any] = {}
    exec(text, names)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    token, expires, *_ = TokenSource(names["msk_token"], "").prepared()("")
    request = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    fields = parse_qs(request.query)
    assert request.hostname == "kafka.eu-central-1.amazonaws.com"
    assert fields["Action"] == ["kafka-cluster:Connect"]
    assert fields["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert len(fields["X-Amz-Signature"][0]) == 64
    assert SECRET not in request.geturl()
    assert 0 < expires - time.time() <= int(fields["X-Amz-Expires"][0]) == 900
