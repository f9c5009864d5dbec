"""`vla config`."""

from __future__ import annotations

import argparse
import sys

from vla_train.cli.common import Subparsers, add_config_arguments, new_group, new_parser

EXAMPLES = """\
  vla config show --config examples/demo.yaml
  vla config show --config upstream.yaml --trainer.max_train_steps 100 --changed
  vla config show --config my.yaml --json train.max_steps=5
  vla config show --model groot                            # every setting with its default"""


def add_parser(subparsers: Subparsers) -> None:
    commands = new_group(subparsers, "config", "Look at configurations.")
    summary = "Print the effective configuration with the source of each value."
    parser = new_parser(commands, "show", run, summary, EXAMPLES)
    parser.add_argument("--changed", action="store_true", help="only values that are not defaults")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_config_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print every value and where it came from."""
    from vla_train.config import ConfigError, load_config
    from vla_train.config.show import as_json, as_text

    if not options.config and not options.model:
        raise ConfigError("Nothing says what to show.", fix="give --config FILE, or --model NAME and its options")
    # A model by its name alone shows what can be set; that it lacks data and weights is no mistake then.
    unchecked = () if options.config else ("data", "model")
    config, sources = load_config(options.config, options.overrides, options.model, unchecked)
    print(as_json(config, sources) if options.json else as_text(config, sources, changed_only=options.changed))
    for note in sources.notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
