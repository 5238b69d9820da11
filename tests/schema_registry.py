"""A schema registry for tests: the requests of Confluent's API that decoders and encoders make, over HTTP or HTTPS."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_SUBJECT = re.compile(r"/subjects/(?P<subject>[^/]+)(?P<versions>/versions(/(?P<version>\d+))?)?")
_SCHEMA = re.compile(r"/schemas/ids/(?P<id>\d+)")


class RegistryServer:
    """A registry at ``url``, from ``with`` until its end.

    Args:
        user_info: ``"user:password"``, which requests must have. None: no authentication.
        certificate: A file with a certificate and its key, for HTTPS. None: HTTP.

    Attributes:
        requests: How often each request was made: ``"GET /schemas/ids/1"``.
        serializes: Whether it can return Protobuf schemas in serialized form. If not, it fails as Apicurio does.
        broken: Whether every request fails with HTTP status 500.
    """

    def __init__(self, user_info: str | None = None, certificate: Path | None = None) -> None:
        self.requests: Counter[str] = Counter()
        self.serializes = True
        self.broken = False
        self._user_info = user_info
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}  # the ids of their versions
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme, port = "http" if certificate is None else "https", self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{port}"

    def __enter__(self) -> RegistryServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, as JSON or parsed JSON, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry = {"schema": text, "schemaType": kind, "references": list(references)}
        if entry not in self._schemas:
            self._schemas.append(entry)
        number = self._schemas.index(entry) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        return sorted(self._subjects)

    def answer(self, method: str, path: str, authorization: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the HTTP status and the answer to a request."""
        path, _, query = path.partition("?")
        self.requests[f"{method} {unquote(path)}"] += 1
        if self.broken:
            return 500, {"error_code": 50001, "message": "Error in the backend data store"}
        if self._user_info is not None:
            wanted = "Basic " + base64.b64encode(self._user_info.encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 401, "message": f"Unauthorized, got {authorization}"}
        if (found := _SCHEMA.fullmatch(path)) is not None:
            number = int(found["id"])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
            if "format=serialized" in query and not self.serializes:
                return 500, {"error_code": 0, "message": "Syntax error in Customer.proto"}
            return 200, self._schemas[number - 1]
        found = _SUBJECT.fullmatch(path)
        assert found is not None
        return self._of_subject(unquote(found["subject"]), found["version"], found["versions"] is not None, body)

    def _of_subject(self, subject: str, version: str | None, versions: bool, body: dict[str, Any]) -> tuple[int, Any]:
        if version is not None:
            return 200, self._registered(subject, self._subjects[subject][int(version) - 1])
        given = {"schema": body["schema"], "schemaType": body["schemaType"], "references": body["references"]}
        if versions:
            return 200, {"id": self.register(subject, given["schema"], given["schemaType"], given["references"])}
        if subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        for number in self._subjects[subject]:
            if self._schemas[number - 1] == given:
                return 200, self._registered(subject, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _registered(self, subject: str, number: int) -> dict[str, Any]:
        version = self._subjects[subject].index(number) + 1
        return {**self._schemas[number - 1], "subject": subject, "version": version, "id": number}


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            status, answer = registry.answer(method, self.path, self.headers.get("Authorization"), body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
