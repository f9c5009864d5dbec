"""Finding backends among the installed distributions and choosing one."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Final

from vla_backend.errors import AmbiguousBackend, BackendError, BackendUnavailable, PluginLoadError, UnknownBackend

GROUP: Final = "vla_backend.plugins"
ENV: Final = "VLA_BACKEND"
AUTO: Final = "auto"


@dataclass(frozen=True)
class Candidate:
    """An installed backend, not yet imported.

    Attributes:
        name: what `--backend` takes.
        distribution, version: the package that provides it.
        target: import path of the plugin.
        why: why it was chosen; empty before a choice.
    """

    name: str
    distribution: str
    version: str
    target: str
    why: str = ""

    def load(self) -> Any:
        """Import the plugin.

        Raises:
            PluginLoadError: the import failed; the original exception is chained.
        """
        try:
            return metadata.EntryPoint(self.name, self.target, GROUP).load()
        except Exception as error:
            raise PluginLoadError(
                f"Backend '{self.name}' cannot be imported ({self.target} from {self.distribution} {self.version}).",
                why=f"{type(error).__name__}: {error}",
                fix=f"repair or upgrade the distribution '{self.distribution}', or choose another backend",
            ) from error


def candidates() -> dict[str, Candidate]:
    """All installed backends by name, none imported.

    Raises:
        AmbiguousBackend: two distributions claim one name.
    """
    found: dict[str, Candidate] = {}
    for entry in metadata.entry_points(group=GROUP):
        dist = entry.dist
        candidate = Candidate(
            name=entry.name,
            distribution=dist.name if dist is not None else "unknown",
            version=dist.version if dist is not None else "unknown",
            target=entry.value,
        )
        other = found.get(entry.name)
        # One distribution can be listed twice when a folder of `sys.path` is reachable by two names.
        if other is not None and (other.target, other.distribution) != (candidate.target, candidate.distribution):
            raise AmbiguousBackend(
                f"Two distributions provide a backend named '{entry.name}'.",
                why=f"{other.distribution} {other.version} ({other.target}) and "
                f"{candidate.distribution} {candidate.version} ({candidate.target})",
                fix=f"uninstall one: pip uninstall {candidate.distribution}",
            )
        found.setdefault(entry.name, candidate)
    return dict(sorted(found.items()))


def find(name: str) -> Candidate:
    """The installed backend called `name`.

    Raises:
        UnknownBackend: no such backend; the message lists those installed and the nearest name.
    """
    installed = candidates()
    if name in installed:
        return installed[name]
    near = difflib.get_close_matches(name, installed, n=1)
    raise UnknownBackend(
        f"There is no backend named '{name}'.",
        why=f"installed: {', '.join(installed) or 'none'}",
        fix=(f"did you mean '{near[0]}'? " if near else "") + "`vla backends` lists what each one needs",
    )


def choose(flag: str | None = None, env: Mapping[str, str] | None = None, config: str | None = None) -> Candidate:
    """Choose by authority: command line, then the variable `VLA_BACKEND`, then the configuration, then automatically.

    An explicit choice is never replaced by another; "auto" at one level asks for the automatic choice.

    Raises:
        UnknownBackend, AmbiguousBackend, BackendUnavailable: see there.
    """
    env = os.environ if env is None else env
    for source, value in (("--backend", flag), (ENV, env.get(ENV)), ("config key 'backend'", config)):
        if value:
            if value == AUTO:
                break
            return replace(find(value), why=f"{source} says so")
    return _automatic(env)


def _automatic(env: Mapping[str, str]) -> Candidate:
    """Probe every installed backend; the highest priority wins, a tie between accelerators is the user's to break."""
    from vla_backend.activation import info_and_probe

    able: list[tuple[int, Candidate, str]] = []
    refused: list[str] = []
    for candidate in candidates().values():
        try:
            info, probe = info_and_probe(candidate, env)
        except BackendError as error:
            refused.append(f"{candidate.name}: {error.what} {error.why}".strip())
            continue
        if probe.ok:
            able.append((info.priority, candidate, probe.reason))
        else:
            refused.append(f"{candidate.name}: {probe.reason}")
    if not able:
        raise BackendUnavailable("No installed backend can run here.", why="; ".join(refused), fix="`vla backends`")
    able.sort(key=lambda item: -item[0])
    best = [item for item in able if item[0] == able[0][0]]
    if len(best) > 1:
        names = " and ".join(item[1].name for item in best)
        raise AmbiguousBackend(
            f"Several backends can run here: {names}.",
            why="; ".join(f"{item[1].name}: {item[2]}" for item in best),
            fix=f"say which one: --backend {best[0][1].name}",
        )
    why = f"automatic: {best[0][2]}" + (f" (not {'; not '.join(refused)})" if refused else "")
    return replace(best[0][1], why=why)
