"""`vla estimate`."""

from __future__ import annotations

import argparse
import json

from vla_train.cli.common import Subparsers, add_backend_argument, add_config_arguments, at_least, new_parser

EXAMPLES = """\
  vla estimate --config examples/demo.yaml
  vla estimate --config examples/robotwin_14dim.yaml --backend ascend --zero 3 --memory 64
  vla estimate --config my.yaml --processes 8 --json model.gradient_checkpointing=true"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Say how much device memory a training run will need; needs neither the device nor the weights."
    parser = new_parser(subparsers, "estimate", run, summary, EXAMPLES)
    add_backend_argument(parser)
    parser.add_argument("--processes", type=at_least(1), metavar="N", help="one per device (sets parallel.processes)")
    parser.add_argument("--strategy", choices=["ddp", "zero2", "zero3"], help="sets parallel.strategy")
    parser.add_argument("--zero", choices=["2", "3"], help="the same for ZeRO, as in `vla train`")
    parser.add_argument("--batch-size", type=at_least(1), metavar="N", help="samples per device (sets data.batch_size)")
    parser.add_argument("--memory", type=float, metavar="GB", help="of one device; exit code 1 if the run needs more")
    parser.add_argument("--json", action="store_true", help="bytes, for programs")
    # The doctor's: libraries may print, so its line is marked.
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the estimate; 1 if it exceeds `--memory`."""
    from vla_backend import activate, choose
    from vla_train import models
    from vla_train.config import ConfigError, load_config
    from vla_train.doctor.children import MARK

    if not options.config and not options.model:
        raise ConfigError("Nothing says what to estimate.", fix="give --config FILE, or --model NAME and its options")
    config, _ = load_config(options.config, [*options.overrides, *_flags(options)], options.model)
    backend = activate(choose(options.backend, config=config.backend), check_available=False)
    from vla_train.estimate.simulate import estimate

    found = estimate(config, models.find(config.model.name), backend)
    fits = options.memory is None or found.peak <= options.memory * 1e9
    if options.marked:
        print(MARK + json.dumps(found.as_dict() | {"fits": fits}))
    elif options.json:
        print(json.dumps(found.as_dict() | {"fits": fits}, indent=2))
    else:
        print("\n".join(found.lines()))
        if options.memory is not None:
            share = f"{found.peak / 1e9:.1f} of {options.memory:g} GB"
            print(f"fits: {share}" if fits else f"does not fit: {share}; {_ADVICE}")
    return 0 if fits else 1


_ADVICE = (
    "use a smaller data.batch_size with train.gradient_accumulation_steps, --zero 3, more processes, or a model "
    "setting that saves memory (gradient_checkpointing, text_encoder_on_host)"
)


def _flags(options: argparse.Namespace) -> list[str]:
    flags = {
        "parallel.processes": options.processes,
        "parallel.strategy": options.strategy or (f"zero{options.zero}" if options.zero else None),
        "data.batch_size": options.batch_size,
    }
    return [f"{key}={value}" for key, value in flags.items() if value is not None]
