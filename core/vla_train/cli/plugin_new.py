"""`vla plugin new`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vla_train.cli.common import Subparsers, new_parser

EXAMPLES = """\
  vla plugin new mychip --device-type mychip
  vla plugin new mychip --device-type mychip --vendor "My Company" --out ~/src/vla-backend-mychip
  vla plugin new mygpu --device-type xpu --extension ""      # a device that torch knows by itself"""


def add_parser(subparsers: Subparsers) -> None:
    summary = "Write the package of a new backend plugin: hooks, tests, CI."
    parser = new_parser(subparsers, "new", run, summary, EXAMPLES)
    parser.add_argument("name", help="name of the backend: what --backend will take")
    parser.add_argument("--device-type", required=True, help="torch's name of the device, as in tensor.device.type")
    parser.add_argument("--vendor", default="", help="maker of the chip (default: the name)")
    parser.add_argument(
        "--extension",
        metavar="PACKAGE",
        help='package that adds the device to torch (default: torch_<device type>); "" if torch knows it by itself',
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write (default: ./vla-backend-<name>)")


def run(options: argparse.Namespace) -> int:
    """Write the package and say what to do next."""
    from vla_train.scaffold import write
    from vla_train.scaffold.names import checked

    names = checked(options.name, options.device_type, options.vendor, options.extension)
    out = (options.out or Path(names.distribution)).expanduser()
    for path in write(names, out):
        print(f"  wrote {out / path}")
    print("next:")
    print(f"  pip install -e '{out}[test]'")
    print("  vla backends")
    print(f"  vla plugin check {names.name} --tier contract")
    print(f"then adapt {out / names.package / 'hardware.py'}; its README says what is in the other files")
    return 0
