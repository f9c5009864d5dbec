"""`vla serve`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    choose_backend,
    describe_launch,
    find_checkpoint,
    new_parser,
    run_config,
    say,
)

EXAMPLES = """\
  vla serve --run runs/demo
  vla serve --run runs/libero --checkpoint 80000 --backend cpu --port 10093
  vla serve --run runs/libero --host 127.0.0.1 --idle-timeout 1800 parallel.mixed_precision=bf16"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Serve a trained policy over WebSocket, with the protocol of DiT4DiT's robot clients."
    parser = new_parser(subparsers, "serve", run, summary, EXAMPLES)
    parser.add_argument("--run", dest="run_folder", metavar="FOLDER", required=True, help="folder of the run")
    parser.add_argument(
        "--checkpoint", default="latest", metavar="latest|STEP|FOLDER", help="which checkpoint (default: latest)"
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: every one)")
    parser.add_argument("--port", type=int, default=10093, help="default: 10093")
    parser.add_argument(
        "--idle-timeout", type=float, default=0, metavar="SECONDS", help="stop after so long without a request"
    )
    add_backend_argument(parser)
    parser.set_defaults(takes_overrides=True)


def run(options: argparse.Namespace) -> int:
    """Check, show, start, and stay until the server has ended."""
    from vla_train.config import load_config, save_config
    from vla_train.launch.plan import SERVER, plan
    from vla_train.launch.preflight import check_evaluation
    from vla_train.launch.supervise import supervise

    run_folder = Path(options.run_folder).expanduser()
    config, sources = load_config([run_config(run_folder)], options.overrides, None)
    checkpoint = find_checkpoint(run_folder, options.checkpoint)
    backend = choose_backend(options.backend, config)
    warnings = check_evaluation(config, sources, backend, os.environ)
    with tempfile.TemporaryDirectory(prefix="vla-serve-") as folder:
        file = Path(folder) / "config.yaml"
        save_config(config, file)
        arguments = [str(file), "--checkpoint", str(checkpoint), "--host", options.host, "--port", str(options.port)]
        arguments += ["--idle-timeout", str(options.idle_timeout)]
        launch = plan(SERVER, arguments, config, backend, os.environ, processes=1)
        say("run", f"{run_folder}, {checkpoint.name}")
        describe_launch(backend, sources, launch, warnings)
        return supervise(launch)
