"""A client for `vla serve --protocol zmq`; robots that already speak the protocol keep their own."""

from __future__ import annotations

from typing import Any

import zmq

from vla_train.serve import zmq_wire


class ZmqPolicyClient:
    """A connection to a policy server.

    Args:
        host, port: where the server listens.
        api_token: sent with every request.
        timeout: seconds to wait for a reply.
    """

    def __init__(
        self, host: str = "127.0.0.1", port: int = 5555, api_token: str | None = None, timeout: float = 15
    ) -> None:
        self.address, self.api_token, self.timeout = f"tcp://{host}:{port}", api_token, timeout
        self._context = zmq.Context()
        self._socket = self._connect()

    def ask(self, endpoint: str = "get_action", **data: Any) -> Any:
        """Call an endpoint with its arguments and wait for the reply.

        Raises:
            TimeoutError: no reply came in time; the next call starts afresh.
            RuntimeError: the server answered with an error.
        """
        request: dict[str, Any] = {"endpoint": endpoint}
        if data:
            request["data"] = data
        if self.api_token is not None:
            request["api_token"] = self.api_token
        try:
            self._socket.send(zmq_wire.pack(request))
            reply = zmq_wire.unpack(self._socket.recv())
        except zmq.Again as error:
            # A request socket that misses a reply takes no further request.
            self._socket.close(linger=0)
            self._socket = self._connect()
            raise TimeoutError(f"{self.address} did not answer within {self.timeout:g} s") from error
        if isinstance(reply, dict) and "error" in reply:
            raise RuntimeError(f"Server error: {reply['error']}")
        return reply

    def close(self) -> None:
        """End the connection."""
        self._socket.close(linger=0)
        self._context.term()

    def __enter__(self) -> ZmqPolicyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.REQ)
        socket.setsockopt(zmq.RCVTIMEO, round(1000 * self.timeout))
        socket.setsockopt(zmq.SNDTIMEO, round(1000 * self.timeout))
        socket.connect(self.address)
        return socket
