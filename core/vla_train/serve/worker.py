"""The serving process, `python -m vla_train.serve.worker CONFIG.yaml --checkpoint FOLDER`; `vla serve` starts it."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from vla_backend import activate, choose
from vla_backend.errors import BackendError
from vla_train import models
from vla_train.config import load_config
from vla_train.launch.failure import guard
from vla_train.worker import translated

#: What upstream's server tells its clients; robots' programs look at it.
METADATA = {"env": "simpler_env"}


def main(argv: list[str] | None = None) -> int:
    """Load the model and serve it until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.serve.worker", description=__doc__)
    parser.add_argument("config", help="complete configuration")
    parser.add_argument("--checkpoint", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=10093)
    parser.add_argument("--idle-timeout", type=float, default=0)
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    if not entry.policy:
        raise BackendError(f"Model '{entry.name}' cannot be served.", why="its entry names no policy")
    try:
        backend.load_stack()
        backend.local_device(0)
        from vla_train.checkpoint.load import load_model
        from vla_train.serve.server import PolicyServer

        backend.matmul_precision(config.train.matmul_precision)
        model = load_model(config, entry, backend, arguments.checkpoint).to(backend.device)
        policy = entry.call("policy")(model, backend, backend.compute_dtype(config.parallel.mixed_precision))
    except Exception as error:
        raise translated(error, backend) from error
    server = PolicyServer(
        policy, host=arguments.host, port=arguments.port, metadata=METADATA, idle_timeout=arguments.idle_timeout
    )
    try:
        server.run()
    except OSError as error:
        raise BackendError(
            f"Cannot listen on {arguments.host}:{arguments.port}.", why=str(error), fix="choose another --port"
        ) from error
    return 0


if __name__ == "__main__":
    sys.exit(guard(main))
