"""A WebSocket server around one policy.

Protocol (upstream project: Mondo-Robotics/DiT4DiT): on connect the server sends a metadata map. Every request is one
binary msgpack map with an optional `type` ("infer", the default, "predict_action" or "ping") and `request_id`; the
whole map is handed to the policy. Replies carry `status`, `ok`, `type`, `request_id` and `data` or `error`. What cannot
be decoded is answered with a traceback as text and the close code 1011.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from vla_backend import BackendError
from vla_train.serve import wire

Policy = Callable[[Mapping[str, Any]], Any]
_INTERNAL_ERROR: Final = 1011
_log = logging.getLogger(__name__)


class PolicyServer:
    """Serves `policy(request) -> data` until stopped.

    Args:
        policy: called with each request map, one request at a time.
        host, port: where to listen; port 0 takes a free one, see `port` after `start`.
        metadata: sent to every client on connect.
        idle_timeout: seconds without a request after which the server stops; 0 for never.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        host: str = "0.0.0.0",
        port: int = 10093,
        metadata: Mapping[str, Any] | None = None,
        idle_timeout: float = 0,
    ) -> None:
        self.policy = policy
        self.host, self.port = host, port
        self.metadata = dict(metadata or {})
        self.idle_timeout = idle_timeout
        self._last_request = time.monotonic()
        # One thread beside the event loop: a long first inference must not starve the keep-alive pings, and a policy
        # is not asked to be reentrant.
        self._inference = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")

    def run(self) -> None:
        """Serve until interrupted or idle for too long."""
        asyncio.run(self._run())

    async def start(self) -> Server:
        """Begin to listen; the caller closes the answered server."""
        server = await serve(self._handle, self.host, self.port, compression=None, max_size=None)
        self.port = next(iter(server.sockets)).getsockname()[1]
        return server

    async def _run(self) -> None:
        server = await self.start()
        _log.info("serving on ws://%s:%d", self.host, self.port)
        if self.idle_timeout <= 0:
            await server.serve_forever()
        while time.monotonic() - self._last_request < self.idle_timeout:
            await asyncio.sleep(min(1.0, self.idle_timeout))
        _log.info("no request for %g s, stopping", self.idle_timeout)
        server.close()
        await server.wait_closed()

    async def _handle(self, connection: ServerConnection) -> None:
        await connection.send(wire.pack(self.metadata))
        while True:
            try:
                request = wire.unpack(await connection.recv())  # type: ignore[arg-type]
                self._last_request = time.monotonic()
                await connection.send(wire.pack(await self.answer(request)))
            except ConnectionClosed:
                return
            except Exception:
                _log.exception("a request could not be answered")
                await connection.send(traceback.format_exc())
                await connection.close(_INTERNAL_ERROR, "Internal error; the traceback is in the frame before.")
                return

    async def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one decoded request; an error of the policy becomes an error reply."""
        request_id, kind = request.get("request_id", "default"), request.get("type", "infer")
        if kind == "ping":
            return {"status": "ok", "ok": True, "type": "ping", "request_id": request_id}
        if kind not in ("infer", "predict_action"):
            return _error("unknown", request_id, f"Unsupported message type '{kind}'")
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._inference, self.policy, request)
        except BackendError as error:
            # The client's mistake: the message says it all.
            _log.warning("request %s: %s", request_id, error)
            return _error("inference_result", request_id, str(error))
        except Exception as error:
            _log.exception("the policy failed on request %s", request_id)
            return _error("inference_result", request_id, str(error))
        return {"status": "ok", "ok": True, "type": "inference_result", "request_id": request_id, "data": data}


def _error(kind: str, request_id: Any, message: str) -> dict[str, Any]:
    return {"status": "error", "ok": False, "type": kind, "request_id": request_id, "error": {"message": message}}
