"""Serving a policy to robots, with the protocols that their clients speak already."""

from __future__ import annotations

from typing import Final

#: Protocols by name, each with the port its clients expect.
PORTS: Final = {"websocket": 10093, "zmq": 5555}
#: Environment variable with the token that a client of the zmq protocol must send.
TOKEN_ENV: Final = "VLA_API_TOKEN"
