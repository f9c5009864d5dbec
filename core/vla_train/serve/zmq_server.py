"""A ZeroMQ server around one policy.

Protocol (upstream project: NVIDIA/Isaac-GR00T): a REP socket; one msgpack message each way. A request is a map with
`endpoint` ("get_action" by default), for endpoints with input `data`, a map of their arguments, and `api_token` if the
server wants one. "ping" and "kill" are the server's own; every other endpoint is the policy's, which gets the arguments
and the endpoint's name in one map. The reply is what the policy answers, or `{"error": text}`.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq

from vla_backend import BackendError
from vla_train.serve import zmq_wire

_PONG: Final = {"status": "ok", "message": "Server is running"}
_UNAUTHORIZED: Final = {"error": "Unauthorized: Invalid API token"}
_log = logging.getLogger(__name__)


class ZmqPolicyServer:
    """Serves `policy(request) -> answer` until it is told to stop.

    Args:
        policy: called with each request, one at a time.
        host, port: where to listen; port 0 takes a free one, see `port` after `start`.
        api_token: what every request must hold as `api_token`; None asks for none.
        idle_timeout: seconds without a request after which the server stops; 0 for never.
    """

    def __init__(
        self,
        policy: Callable[[Mapping[str, Any]], Any],
        *,
        host: str = "0.0.0.0",
        port: int = 5555,
        api_token: str | None = None,
        idle_timeout: float = 0,
    ) -> None:
        self.policy, self.host, self.port = policy, host, port
        self.api_token, self.idle_timeout = api_token, idle_timeout
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REP)
        self._killed = False

    def start(self) -> None:
        """Begin to listen.

        Raises:
            OSError: the address is taken or not ours.
        """
        try:
            self._socket.bind(f"tcp://{self.host}:{self.port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, str(error)) from error
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def run(self) -> None:
        """Serve until interrupted, killed by a client, or idle for too long."""
        self.start()
        _log.info("serving on tcp://%s:%d", self.host, self.port)
        self.serve()

    def serve(self) -> None:
        """Answer requests; after `start`."""
        last = time.monotonic()
        try:
            while not self._killed:
                # In short waits: a signal's handler runs between them on every platform.
                if self._socket.poll(500):
                    self._socket.send(self.answer(self._socket.recv()))
                    last = time.monotonic()
                elif 0 < self.idle_timeout < time.monotonic() - last:
                    _log.info("no request for %g s, stopping", self.idle_timeout)
                    return
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening; a reply on its way is still sent."""
        self._socket.close(linger=1000)
        self._context.term()

    def answer(self, message: bytes) -> bytes:
        """The reply to one message; every error becomes an error reply, for a client waits for it."""
        try:
            return zmq_wire.pack(self._answer(zmq_wire.unpack(message)))
        except BackendError as error:
            # The client's mistake: the message says it all.
            _log.warning("a request could not be answered: %s", error)
            return zmq_wire.pack({"error": str(error)})
        except Exception as error:
            _log.exception("a request could not be answered")
            return zmq_wire.pack({"error": str(error) or type(error).__name__})

    def _answer(self, request: Any) -> Any:
        if not isinstance(request, Mapping):
            raise TypeError(f"a request is a map with 'endpoint' and 'data', not {type(request).__name__}")
        if self.api_token is not None:
            given = str(request.get("api_token", "")).encode()
            if not hmac.compare_digest(given, self.api_token.encode()):
                return _UNAUTHORIZED
        endpoint = request.get("endpoint", "get_action")
        if endpoint == "ping":
            return _PONG
        if endpoint == "kill":
            self._killed = True
            return None
        return self.policy({**(request.get("data") or {}), "endpoint": endpoint})
