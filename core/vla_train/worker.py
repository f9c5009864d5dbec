"""One process of a training job: `python -m vla_train.worker CONFIG.yaml`; the launcher starts one per device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vla_backend import Backend, activate, choose
from vla_backend.errors import BackendError, TranslatedError
from vla_train import models
from vla_train.config import load_config
from vla_train.launch.failure import guard, of_the_disk


def main(argv: list[str] | None = None) -> int:
    """Train as CONFIG.yaml says. A run that SIGTERM or SIGINT ended has saved a checkpoint and counts as success."""
    parser = argparse.ArgumentParser(prog="python -m vla_train.worker", description=__doc__)
    parser.add_argument("config", help="complete configuration, as `vla train` writes it into the run's folder")
    arguments = parser.parse_args(argv)
    config, _ = load_config([arguments.config])
    backend = activate(choose(config=config.backend))
    entry = models.find(config.model.name)
    try:
        backend.load_stack()
        # What uses torch may be imported only after the backend has loaded what must come before torch.
        from vla_train.train.run import run

        run(config, entry, backend)
    except Exception as error:
        folder = Path(config.run.root) / config.run.id
        raise of_the_disk(error, folder) or translated(error, backend) from error
    return 0


def translated(error: Exception, backend: Backend) -> Exception:
    """A vendor's error in the backend's words; an error that the backend does not know, or one of ours, as it is."""
    if isinstance(error, BackendError):
        # Its own words are better; the table may know them in Chinese.
        error.chinese = error.chinese or backend.translate_error(RuntimeError(str(error))).chinese
        return error
    known = backend.translate_error(error)
    if not known.known:
        return error
    made = TranslatedError(known.what, why=f"{known.why} ({type(error).__name__}: {error})", fix=known.remedy)
    made.chinese = known.chinese
    return made


if __name__ == "__main__":
    sys.exit(guard(main))
