"""Messages on the wire: msgpack maps with numpy arrays inside.

An array is a map with binary keys: `__ndarray__` true, `data` its bytes in C order, `dtype` numpy's string, `shape`.
A numpy scalar is a map with `__npgeneric__` true, `data` the Python value, and `dtype`.
"""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np

#: Numpy kinds that have no portable bytes: void, object, complex.
_REFUSED = "VOc"


def pack(message: Any) -> bytes:
    """Encode `message`.

    Raises:
        ValueError: it holds an array of void, object or complex dtype, or a value that msgpack does not know.
    """
    data: bytes = msgpack.packb(message, default=_encode)
    return data


def unpack(data: bytes) -> Any:
    """Decode a message; arrays are read-only views of the received bytes."""
    return msgpack.unpackb(data, object_hook=_decode)


def _encode(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _REFUSED:
        raise ValueError(f"arrays of dtype {value.dtype} cannot be sent; convert them first")
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    if isinstance(value, np.generic):
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise ValueError(f"a value of type {type(value).__name__} cannot be sent")


def _decode(value: dict[Any, Any]) -> Any:
    if b"__ndarray__" in value:
        return np.ndarray(shape=value[b"shape"], dtype=np.dtype(value[b"dtype"]), buffer=value[b"data"])
    if b"__npgeneric__" in value:
        return np.dtype(value[b"dtype"]).type(value[b"data"])
    return value
