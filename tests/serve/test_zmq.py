"""The bytes that GR00T's clients and servers exchange, recorded, and what goes wrong."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq

from vla_train.serve import zmq_wire
from vla_train.serve.zmq_client import ZmqPolicyClient
from vla_train.serve.zmq_server import ZmqPolicyServer

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "groot" / "wire.json").read_text())
HOST = "127.0.0.1"


def frame(name: str) -> bytes:
    return bytes.fromhex(RECORDED[name]["hex"])


def policy(request):
    if request["endpoint"] == "get_action":
        if "observation" not in request:
            raise ValueError("boom")
        return [{"x": np.zeros((1, 2, 1), np.float32)}, {}]
    if request["endpoint"] == "get_modality_config":
        return zmq_wire.unpack(frame("response_modality"))
    return {}


@pytest.fixture
def serving() -> Iterator[ZmqPolicyServer]:
    server = ZmqPolicyServer(policy, host=HOST, port=0)
    server.start()
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    if thread.is_alive():
        with ZmqPolicyClient(HOST, server.port) as client:
            client.ask("kill")
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_recorded_frames_survive_a_round_trip(name: str) -> None:
    assert zmq_wire.pack(zmq_wire.unpack(frame(name))) == frame(name)


@pytest.mark.parametrize(
    ("request_name", "reply_name"),
    [("get_action", "response_action"), ("ping", "response_ping"), ("get_modality_config", "response_modality")],
)
def test_recorded_session(serving: ZmqPolicyServer, request_name: str, reply_name: str) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(f"tcp://{HOST}:{serving.port}")
        socket.send(frame(request_name))
        assert socket.recv() == frame(reply_name)


def test_observation_arrives_as_sent() -> None:
    data = zmq_wire.unpack(frame("get_action"))["data"]
    image = data["observation"]["video"]["image"]
    assert (image.shape, image.dtype, image.ravel().tolist()) == ((1, 1, 2, 2, 3), np.uint8, list(range(12)))
    assert data["observation"]["state"]["x"].tolist() == [[[0.5]]]
    assert data["observation"]["language"] == {"task": [["do it"]]}


def test_client_sends_the_recorded_requests(serving: ZmqPolicyServer) -> None:
    data, messages, answer = zmq_wire.unpack(frame("get_action"))["data"], [], serving.answer
    serving.answer = lambda message: messages.append(message) or answer(message)
    with ZmqPolicyClient(HOST, serving.port) as client:
        actions, info = client.ask("get_action", **data)
        assert (actions["x"].shape, info) == ((1, 2, 1), {})
        assert client.ask("reset", options=None) == {}
        assert client.ask("ping") == {"status": "ok", "message": "Server is running"}
    assert messages == [frame(name) for name in ("get_action", "reset", "ping")]
    with ZmqPolicyClient(HOST, serving.port, api_token="secret") as client:
        client.ask("get_action", **data)
    assert messages[-1] == frame("get_action_token")


def test_errors_are_replies(serving: ZmqPolicyServer) -> None:
    assert serving.answer(zmq_wire.pack({"endpoint": "get_action"})) == frame("response_error")
    for bad in (b"\xc1 not msgpack", zmq_wire.pack([1]), b""):
        assert zmq_wire.unpack(serving.answer(bad))["error"]
    with ZmqPolicyClient(HOST, serving.port) as client:
        with pytest.raises(RuntimeError, match="Server error: boom"):
            client.ask()
        assert client.ask("ping")["status"] == "ok"


def test_token() -> None:
    server = ZmqPolicyServer(policy, api_token="secret")
    assert server.answer(frame("get_action_token")) == frame("response_action")
    for name in ("get_action", "ping", "kill"):
        assert zmq_wire.unpack(server.answer(frame(name))) == {"error": "Unauthorized: Invalid API token"}
    server.close()


def test_kill_and_idleness_stop_the_server(serving: ZmqPolicyServer) -> None:
    with ZmqPolicyClient(HOST, serving.port) as client:
        assert client.ask("kill") is None
    ZmqPolicyServer(policy, host=HOST, port=0, idle_timeout=0.05).run()


def test_a_client_recovers_from_a_missed_reply() -> None:
    server = ZmqPolicyServer(policy, host=HOST, port=0)
    server.start()
    with ZmqPolicyClient(HOST, server.port, timeout=0.2) as client:
        with pytest.raises(TimeoutError, match=r"within 0\.2 s"):
            client.ask("ping")
        client.timeout = 15
        client._socket.setsockopt(zmq.RCVTIMEO, 15_000)
        thread = threading.Thread(target=server.serve)
        thread.start()
        assert client.ask("kill") is None
        thread.join(10)


def test_taken_port(serving: ZmqPolicyServer) -> None:
    with pytest.raises(OSError, match="in use"):
        ZmqPolicyServer(policy, host=HOST, port=serving.port).start()


def test_nothing_is_unpickled() -> None:
    for bad in (np.array([object()]), np.zeros(1, [("a", "f4")]), object()):
        with pytest.raises(ValueError, match="cannot be sent"):
            zmq_wire.pack({"value": bad})
    for kind in ("|O", [["a", "<f4"]]):
        sent = msgpack.packb({b"nd": True, b"type": kind, b"kind": b"O", b"shape": [1], b"data": b"x" * 8})
        with pytest.raises(ValueError, match="was sent"):
            zmq_wire.unpack(sent)


def test_scalars_and_the_arrays_of_the_first_releases() -> None:
    again = zmq_wire.unpack(zmq_wire.pack({"a": np.float32(1.5), "b": np.array([[1, 2]], ">i2")}))
    assert (again["a"], type(again["a"])) == (np.float32(1.5), np.float32)
    assert (again["b"].tolist(), again["b"].dtype) == ([[1, 2]], np.dtype(">i2"))
    old = io.BytesIO()
    np.save(old, np.arange(3))
    sent = msgpack.packb({"__ndarray_class__": True, "as_npy": old.getvalue()})
    assert zmq_wire.unpack(sent).tolist() == [0, 1, 2]
