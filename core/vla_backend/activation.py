"""Registering exactly one plugin above the defaults, and refusing one that does not fit the contract."""

from __future__ import annotations

import difflib
import importlib.util
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pluggy

from vla_backend import defaults, hookspecs
from vla_backend.backend import Backend
from vla_backend.discovery import Candidate, choose, find
from vla_backend.errors import ApiMismatch, BackendUnavailable, HookNameError, HookSignatureError, MissingHook
from vla_backend.markers import API, PROJECT
from vla_backend.types import BackendInfo, Probe

DEFAULTS = "defaults"


def activate(
    backend: str | Candidate | None = None,
    *,
    env: Mapping[str, str] | None = None,
    observers: Iterable[object] = (),
    check_available: bool = True,
) -> Backend:
    """Load one backend and nothing of the others.

    Args:
        backend: a name, a `Candidate` from `choose`, or `None` for the usual order of authority.
        env: the environment to probe in; `os.environ` by default.
        observers: plugins with hook wrappers only (tracing, timing); they see every call and answer none.
        check_available: false to look at a backend on a machine without its hardware.

    Raises:
        BackendUnavailable: the hardware or the vendor's packages are missing; the message says which.
        BackendError: a subclass per mistake of the plugin, naming the plugin and the hook.
    """
    env = os.environ if env is None else env
    candidate = backend if isinstance(backend, Candidate) else find(backend) if backend else choose(env=env)
    manager = register(candidate, observers)
    active = Backend(candidate, manager)
    _check_api(candidate, active.info)
    if check_available:
        probe = active.probe(env)
        if not probe.ok:
            raise BackendUnavailable(
                f"Backend '{candidate.name}' cannot run here.",
                why=probe.reason,
                fix=probe.remedy or "`vla backends` lists the backends that can",
            )
    return active


def info_and_probe(candidate: Candidate, env: Mapping[str, str]) -> tuple[BackendInfo, Probe]:
    """What a backend says of itself and of this machine, without activating it."""
    active = activate(candidate, env=env, check_available=False)
    return active.info, active.probe(env)


def new_manager() -> pluggy.PluginManager:
    """A manager that knows the hook specifications and the defaults."""
    manager = pluggy.PluginManager(PROJECT)
    for module in hookspecs.MODULES:
        manager.add_hookspecs(module)
    for module in defaults.MODULES:
        manager.register(module, name=f"{DEFAULTS}.{module.__name__.rpartition('.')[2]}")
    return manager


def register(candidate: Candidate, observers: Iterable[object] = ()) -> pluggy.PluginManager:
    """A manager with the defaults, the plugin and observers; every implemented hook is checked against its spec."""
    manager = new_manager()
    for name, module in plugin_modules(candidate):
        try:
            manager.register(module, name=name)
        except pluggy.PluginValidationError as error:
            raise HookSignatureError(
                f"Backend '{candidate.name}' ({candidate.distribution} {candidate.version}) does not fit the contract.",
                why=str(error),
                fix=f"correct the signature, or install a version of '{candidate.distribution}' for API {API}",
            ) from error
    _check_names(candidate, manager)
    for observer in observers:
        manager.register(observer)
        for caller in manager.get_hookcallers(observer) or []:
            for impl in caller.get_hookimpls():
                if impl.plugin is observer and not (impl.wrapper or impl.hookwrapper):
                    raise HookSignatureError(
                        f"Observer {impl.plugin_name} answers the hook '{caller.name}'.",
                        why="only the chosen backend may answer",
                        fix="make it a wrapper: @hookimpl(wrapper=True)",
                    )
    for name, spec in hookspecs.SPECS.items():
        if spec.required and not any(not impl.wrapper for impl in getattr(manager.hook, name).get_hookimpls()):
            raise MissingHook(
                f"Backend '{candidate.name}' does not implement '{name}'.",
                why="this hook has no generic default",
                fix=f"add a function '{name}' marked @hookimpl to the plugin; docs/hooks.md says what it answers",
            )
    return manager


def plugin_modules(candidate: Candidate) -> list[tuple[str, Any]]:
    """A plugin is a module or object with hooks; a package may spread them over modules named as the spec groups."""
    root = candidate.load()
    modules: list[tuple[str, Any]] = [(candidate.name, root)]
    if isinstance(root, ModuleType) and hasattr(root, "__path__"):
        for group in hookspecs.GROUPS:
            path = f"{root.__name__}.{group}"
            if importlib.util.find_spec(path) is not None:
                modules.append((f"{candidate.name}.{group}", replace(candidate, target=path).load()))
    return modules


def _check_names(candidate: Candidate, manager: pluggy.PluginManager) -> None:
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        unknown = next(
            name for name in vars(manager.hook) if not name.startswith("_") and not getattr(manager.hook, name).spec
        )
        near = difflib.get_close_matches(unknown, hookspecs.SPECS, n=1)
        raise HookNameError(
            f"Backend '{candidate.name}' ({candidate.distribution} {candidate.version}) implements "
            f"'{unknown}', which is not a hook.",
            why=str(error),
            fix=f"did you mean '{near[0]}'?" if near else "the hooks are listed in docs/hooks.md",
        ) from error


def _check_api(candidate: Candidate, info: BackendInfo) -> None:
    theirs, ours = info.api.split("."), API.split(".")
    if theirs[0] != ours[0]:
        older = int(theirs[0]) < int(ours[0])
        raise ApiMismatch(
            f"Backend '{candidate.name}' is written for API {info.api}, this is API {API}.",
            why="the major numbers differ, hooks have changed incompatibly",
            fix=f"upgrade '{candidate.distribution}'" if older else "upgrade 'vla-backend'",
        )
    if int(theirs[1]) > int(ours[1]):
        warnings.warn(
            f"Backend '{candidate.name}' is written for API {info.api}, newer than {API}: "
            "hooks it added are ignored; upgrade 'vla-backend'.",
            stacklevel=3,
        )
