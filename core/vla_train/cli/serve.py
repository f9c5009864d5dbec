"""`vla serve`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from vla_train.cli.common import (
    Subparsers,
    add_backend_argument,
    add_config_arguments,
    at_least,
    choose_backend,
    describe_launch,
    find_checkpoint,
    new_parser,
    run_config,
    say,
)
from vla_train.serve import PORTS, TOKEN_ENV

EXAMPLES = f"""\
  vla serve --run runs/demo
  vla serve --run runs/libero --checkpoint 80000 --backend cpu --port 10093
  vla serve --run runs/libero --host 127.0.0.1 --idle-timeout 1800 parallel.mixed_precision=bf16
  vla serve --model groot --base-model nvidia/GR00T-N1.7-3B --embodiment-tag libero_sim
  {TOKEN_ENV}=secret vla serve --run runs/groot    # clients of the zmq protocol must send the token"""


def add_parser(subparsers: Subparsers) -> None:
    summary = (
        "Serve a policy: a run's checkpoint, or published weights; with the protocol of the model's robot clients."
    )
    parser = new_parser(subparsers, "serve", run, summary, EXAMPLES)
    parser.add_argument("--run", dest="run_folder", metavar="FOLDER", help="folder of the run, instead of --config")
    parser.add_argument(
        "--checkpoint",
        default="latest",
        metavar="latest|STEP|FOLDER",
        help="which of its checkpoints (default: latest)",
    )
    parser.add_argument("--protocol", choices=sorted(PORTS), help="default: the model's")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: every one)")
    ports = ", ".join(f"{port} for {name}" for name, port in PORTS.items())
    parser.add_argument("--port", type=_port, metavar="PORT", help=f"default: {ports}")
    parser.add_argument(
        "--idle-timeout", type=float, default=0, metavar="SECONDS", help="stop after so long without a request"
    )
    add_backend_argument(parser)
    add_config_arguments(parser)


def _port(text: str) -> int:
    port = at_least(0)(text)
    if port > 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port: they end at 65535")
    return port


def run(options: argparse.Namespace) -> int:
    """Check, show, start, and stay until the server has ended."""
    from vla_train.config import ConfigError, load_config, save_config
    from vla_train.launch.plan import SERVER, plan
    from vla_train.launch.preflight import check_serving
    from vla_train.launch.supervise import supervise
    from vla_train.models import find

    run_folder = Path(options.run_folder).expanduser() if options.run_folder else None
    files = [*([run_config(run_folder)] if run_folder else []), *options.config]
    if not files and not options.model:
        raise ConfigError(
            "Nothing says what to serve.", fix="pass --run runs/NAME, or --model NAME and where its weights are"
        )
    config, sources = load_config(files, options.overrides, options.model, unchecked=("data",))
    entry = find(config.model.name)
    if not entry.policy:
        raise ConfigError(
            f"Model '{entry.name}' cannot be served.",
            why="its entry names no policy",
            fix="add `policy` to the model's entry (docs/models.md)",
        )
    checkpoint = find_checkpoint(run_folder, options.checkpoint) if run_folder else None
    backend = choose_backend(options.backend, config)
    warnings = check_serving(config, sources, backend, os.environ)
    protocol = options.protocol or entry.protocol
    port = PORTS[protocol] if options.port is None else options.port
    with tempfile.TemporaryDirectory(prefix="vla-serve-") as folder:
        file = Path(folder) / "config.yaml"
        save_config(config, file)
        arguments = [str(file), "--protocol", protocol, "--host", options.host, "--port", str(port)]
        arguments += ["--idle-timeout", str(options.idle_timeout)]
        if checkpoint:
            arguments += ["--run", str(run_folder), "--checkpoint", str(checkpoint)]
        launch = plan(SERVER, arguments, config, backend, os.environ, processes=1)
        say(
            "serves", f"{run_folder}, {checkpoint.name}" if checkpoint else f"{config.model.name} as configured, no run"
        )
        say("protocol", f"{protocol}, port {port}")
        describe_launch(backend, sources, launch, warnings)
        return supervise(launch)
