"""The bytes that upstream's clients and servers exchange, recorded, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from vla_train.serve import wire
from vla_train.serve.client import PolicyClient
from vla_train.serve.server import PolicyServer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "serve" / "protocol.json").read_text())


def frame(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name])


def policy(request):
    if "examples" not in request:
        raise ValueError("the request has no 'examples'")
    if "slow" in request:
        import time

        time.sleep(0.5)
    return {"normalized_actions": np.arange(16, dtype=np.float32).reshape(1, 2, 8) / 8}


@pytest.fixture
def server() -> Iterator[PolicyServer]:
    server = PolicyServer(policy, host="127.0.0.1", port=0, metadata={"env": "simpler_env"})
    loop = asyncio.new_event_loop()
    running = loop.run_until_complete(server.start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server

    async def stop() -> None:
        running.close()
        await running.wait_closed()

    asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.mark.parametrize(
    "name", ["infer.request", "infer.response", "ping.request", "ping.response", "unknown.response"]
)
def test_recorded_frames_survive_a_round_trip(name: str) -> None:
    assert wire.pack(wire.unpack(frame(name))) == frame(name)


def test_recorded_session(server: PolicyServer) -> None:
    with connect(f"ws://127.0.0.1:{server.port}", compression=None, proxy=None) as client:
        assert client.recv() == frame("metadata")
        for name in ("infer", "ping", "unknown"):
            client.send(frame(f"{name}.request"))
            reply = client.recv()
            if name == "infer":
                want = wire.unpack(frame("infer.response"))
                got = wire.unpack(reply)
                np.testing.assert_array_equal(
                    got["data"].pop("normalized_actions"), np.arange(16, dtype=np.float32).reshape(1, 2, 8) / 8
                )
                want["data"].pop("normalized_actions")
                assert got == want
            else:
                assert reply == frame(f"{name}.response")
        client.send(frame("bad_payload.request"))
        got, want = wire.unpack(client.recv()), wire.unpack(frame("bad_payload.response"))
        assert "examples" in got.pop("error")["message"]
        want.pop("error")
        assert got == want


def test_what_cannot_be_decoded_closes_with_1011(server: PolicyServer) -> None:
    with connect(f"ws://127.0.0.1:{server.port}", compression=None, proxy=None) as client:
        client.recv()
        client.send(b"\xc1 not msgpack")
        assert isinstance(client.recv(), str) == GOLDEN["garbage.response_is_str"]
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd.code == GOLDEN["garbage.close_code"]


def test_client(server: PolicyServer) -> None:
    with PolicyClient("127.0.0.1", server.port) as client:
        assert client.metadata == GOLDEN["decoded"]["client_metadata"]
        assert sorted(client.ask({"examples": []})) == GOLDEN["decoded"]["client_response_keys"]
        assert client.ask({"type": "ping", "request_id": "r1"}) == GOLDEN["decoded"]["ping"]


def test_a_slow_inference_does_not_block_other_clients(server: PolicyServer) -> None:
    with PolicyClient("127.0.0.1", server.port) as slow, PolicyClient("127.0.0.1", server.port) as quick:
        replies: list[str] = []
        thread = threading.Thread(target=lambda: (slow.ask({"examples": [], "slow": True}), replies.append("slow")))
        thread.start()
        quick.ask({"type": "ping"})
        replies.append("ping")
        thread.join()
    assert replies == ["ping", "slow"]


def test_idle_server_stops() -> None:
    PolicyServer(policy, host="127.0.0.1", port=0, idle_timeout=0.05).run()


@pytest.mark.parametrize("value", [np.array([1j]), np.array([object()]), object()])
def test_what_cannot_be_sent_is_refused(value) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        wire.pack({"value": value})


def test_scalars_and_dtypes() -> None:
    message = {"a": np.float32(1.5), "b": np.array([[1, 2]], dtype=">i2"), "c": np.array(3.0), "d": np.zeros((0, 3))}
    again = wire.unpack(wire.pack(message))
    assert again["a"] == np.float32(1.5)
    assert type(again["a"]) is np.float32
    for key in "bcd":
        np.testing.assert_array_equal(again[key], message[key])
        assert again[key].dtype == message[key].dtype
