"""Random state of one rank - torch through the backend, numpy, Python - in one safetensors file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from vla_backend import Backend


def save_rng(backend: Backend, path: Path) -> None:
    """Write the state of every generator of this process."""
    tensors = {f"torch.{name}": state.cpu().contiguous() for name, state in backend.rng_state().items()}
    algorithm, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, python_gauss = random.getstate()
    tensors["numpy.keys"] = torch.from_numpy(np.asarray(keys).astype(np.int64))
    tensors["python.keys"] = torch.tensor(internal, dtype=torch.int64)
    facts = {
        # Floats as hex are exact.
        "numpy": [str(algorithm), int(position), int(has_gauss), float(gauss).hex()],
        "python": [version, None if python_gauss is None else python_gauss.hex()],
    }
    save_file(tensors, str(path), metadata={"facts": json.dumps(facts)})


def load_rng(backend: Backend, path: Path) -> None:
    """Put back what `save_rng` wrote."""
    with safe_open(str(path), framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = json.loads(file.metadata()["facts"])
    algorithm, position, has_gauss, gauss = facts["numpy"]
    keys = tensors.pop("numpy.keys").numpy().astype(np.uint32)
    np.random.set_state((algorithm, keys, position, has_gauss, float.fromhex(gauss)))
    version, python_gauss = facts["python"]
    internal = tuple(tensors.pop("python.keys").tolist())
    random.setstate((version, internal, None if python_gauss is None else float.fromhex(python_gauss)))
    backend.set_rng_state({name.removeprefix("torch."): state for name, state in tensors.items()})
