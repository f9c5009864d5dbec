"""`python -m vla_train.cli`, the same as `vla`."""

import sys

from vla_train.cli.main import main

sys.exit(main())
