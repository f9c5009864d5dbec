"""The serving process, `python -m vla_train.serve.worker CONFIG.yaml [--run FOLDER --checkpoint FOLDER]`.

`vla serve` starts it. Without a checkpoint it serves the weights that the configuration names.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vla_backend import Backend, activate, choose
from vla_backend.errors import BackendError
from vla_train import models
from vla_train.config import Config, load_config
from vla_train.launch.failure import guard
from vla_train.models import ModelEntry
from vla_train.serve import PORTS, TOKEN_ENV
from vla_train.worker import translated

#: What DiT4DiT's server tells its clients; robots' programs look at it.
METADATA = {"env": "simpler_env"}
Policy = Callable[[Mapping[str, Any]], Any]


def main(argv: list[str] | None = None) -> int:
    """Load the model and serve it until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.serve.worker", description=__doc__)
    parser.add_argument("config", help="complete configuration")
    parser.add_argument("--run", type=Path, help="folder of the run")
    parser.add_argument("--checkpoint", type=Path, help="checkpoint folder")
    parser.add_argument("--protocol", choices=sorted(PORTS), required=True)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--idle-timeout", type=float, default=0)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config, _ = load_config([arguments.config], unchecked=("data",))
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    if not entry.policy:
        raise BackendError(f"Model '{entry.name}' cannot be served.", why="its entry names no policy")
    try:
        backend.load_stack()
        backend.local_device(0)
        policy = load_policy(config, entry, backend, arguments.run, arguments.checkpoint)
    except Exception as error:
        raise translated(error, backend) from error
    place = {"host": arguments.host, "port": arguments.port, "idle_timeout": arguments.idle_timeout}
    try:
        _server(arguments.protocol, policy, place).run()
    except OSError as error:
        raise BackendError(
            f"Cannot listen on {arguments.host}:{arguments.port}.", why=str(error), fix="choose another --port"
        ) from error
    return 0


def load_policy(
    config: Config, entry: ModelEntry, backend: Backend, run: Path | None, checkpoint: Path | None
) -> Policy:
    """The policy of a run's checkpoint, or of the weights that the configuration names.

    Raises:
        BackendError: the model or its weights cannot be had.
    """
    # Torch, which these import, may be loaded only after the backend's stack.
    from vla_train.checkpoint.load import load_model
    from vla_train.train.setup import STATISTICS, build_model

    backend.matmul_precision(config.train.matmul_precision)
    statistics: dict[str, Any] = {}
    if checkpoint is None:
        model = build_model(config, entry, backend, {})
    else:
        model = load_model(config, entry, backend, checkpoint)
    if run is not None and (run / STATISTICS).is_file():
        statistics = json.loads((run / STATISTICS).read_text(encoding="utf-8"))
    policy: Policy = entry.call("policy")(model.eval().to(backend.device), backend, config, statistics)
    return policy


def _server(protocol: str, policy: Policy, place: dict[str, Any]) -> Any:
    if protocol == "zmq":
        from vla_train.serve.zmq_server import ZmqPolicyServer

        return ZmqPolicyServer(policy, api_token=os.environ.get(TOKEN_ENV), **place)
    from vla_train.serve.server import PolicyServer

    return PolicyServer(policy, metadata=METADATA, **place)


if __name__ == "__main__":
    sys.exit(guard(main))
