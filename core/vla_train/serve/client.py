"""A client for `vla serve`; robots that already speak the protocol keep their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from websockets.sync.client import connect

from vla_train.serve import wire


class PolicyClient:
    """A connection to a policy server.

    Args:
        host, port: where the server listens.
        open_timeout: seconds to wait for it to accept.

    Attributes:
        metadata: what the server said of itself.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 10093, open_timeout: float = 300) -> None:
        # `proxy=None`: a robot's policy server is reached directly whatever the environment says.
        self._connection = connect(
            f"ws://{host}:{port}", compression=None, max_size=None, open_timeout=open_timeout, proxy=None
        )
        self.metadata: dict[str, Any] = wire.unpack(_binary(self._connection.recv()))

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its reply.

        Raises:
            RuntimeError: the server could not handle the request at all; the message is its traceback.
        """
        self._connection.send(wire.pack(dict(request)))
        reply: dict[str, Any] = wire.unpack(_binary(self._connection.recv()))
        return reply

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _binary(frame: str | bytes) -> bytes:
    if isinstance(frame, str):
        raise RuntimeError(f"the server failed:\n{frame}")
    return frame
