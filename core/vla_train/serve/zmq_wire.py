"""Messages of the ZeroMQ protocol: msgpack with numpy arrays as the package msgpack-numpy writes them.

An array is a map with binary keys: `nd` true, `type` numpy's dtype string, `kind` empty, `shape`, `data` its bytes in C
order. A numpy scalar has `nd` false, `type` and `data`. Arrays of objects, which would need pickle, are refused.
"""

from __future__ import annotations

import io
from typing import Any

import msgpack
import numpy as np

#: Numpy kinds that have no portable bytes: void, object.
_REFUSED = "VO"


def pack(message: Any) -> bytes:
    """Encode `message`.

    Raises:
        ValueError: it holds an array of void or object dtype, or a value that msgpack does not know.
    """
    data: bytes = msgpack.packb(message, default=_encode)
    return data


def unpack(data: bytes) -> Any:
    """Decode a message; arrays are read-only views of the received bytes.

    Raises:
        ValueError: it is no such message, or holds an array of void or object dtype.
    """
    return msgpack.unpackb(data, object_hook=_decode)


def _encode(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _REFUSED:
        raise ValueError(f"arrays of dtype {value.dtype} cannot be sent; convert them first")
    if isinstance(value, np.ndarray):
        kind = value.dtype.str
        return {b"nd": True, b"type": kind, b"kind": b"", b"shape": value.shape, b"data": value.tobytes()}
    if isinstance(value, np.generic):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    raise ValueError(f"a value of type {type(value).__name__} cannot be sent")


def _decode(value: dict[Any, Any]) -> Any:
    if b"nd" in value:
        dtype = np.dtype(_text(value[b"type"]))
        if dtype.kind in _REFUSED:
            raise ValueError(f"an array of dtype {dtype} was sent; only numbers and texts are accepted")
        if value[b"nd"]:
            return np.ndarray(shape=value[b"shape"], dtype=dtype, buffer=value[b"data"])
        return np.frombuffer(value[b"data"], dtype)[0]
    if "__ndarray_class__" in value:  # clients of the first releases
        return np.load(io.BytesIO(value["as_npy"]), allow_pickle=False)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    raise ValueError("an array with named fields was sent; only plain arrays are accepted")
