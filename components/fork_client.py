"""The program that Spark runs as its Python in tests: asks a ``ForkServer`` for a process, and ends when it has ended.

It is run with ``-IS`` and imports little, so that it starts quickly. Without a server, and for other modules, it
replaces itself with Python.
"""

import json
import os
import socket
import sys

HEADER = 8
"""The number of bytes of the length of a request."""


def main(python: str, address: str, modules: str, *arguments: str) -> None:
    """Run ``python`` with ``arguments``, in a process of the server if they run one of ``modules``."""
    if arguments[:1] == ("-m",) and arguments[1] in modules.split(","):
        with socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(address)
            except OSError:
                pass
            else:
                os._exit(_run(server, arguments[1:]))
    os.execv(python, [python, *arguments])


def _run(server: socket.socket, arguments: tuple[str, ...]) -> int:
    request = json.dumps({"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    socket.send_fds(server, [len(request).to_bytes(HEADER, "big")], [0, 1, 2])
    server.sendall(request)
    outcome = server.recv(1)
    return outcome[0] if outcome else 1


if __name__ == "__main__":
    main(*sys.argv[1:])
