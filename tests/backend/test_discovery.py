from __future__ import annotations

import pytest

from vla_backend import candidates, choose
from vla_backend.errors import AmbiguousBackend, BackendUnavailable, PluginLoadError, UnknownBackend

ABSENT = """
@hookimpl
def probe():
    return Probe(ok=False, reason="no device files", remedy="install the driver")
"""


def test_built_in_backends_come_from_entry_points() -> None:
    found = candidates()
    assert {"ascend", "cpu", "cuda"} <= set(found)
    assert found["cpu"].distribution == "vla-backend"


def test_third_party_backend_is_listed_without_import(install) -> None:
    name = install("mychip", "raise RuntimeError('imported')")
    assert candidates()[name].version == "1.2"


def test_two_distributions_with_one_name(install) -> None:
    install("mychip", dist="vla-mychip")
    install("mychip", dist="other-mychip")
    with pytest.raises(AmbiguousBackend) as error:
        candidates()
    for word in ("mychip", "vla-mychip 1.2", "other-mychip 1.2", "pip uninstall"):
        assert word in str(error.value)


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UnknownBackend, match="did you mean 'ascend'"):
        choose("ascent")


@pytest.mark.parametrize(
    ("flag", "env", "config", "expected", "why"),
    [
        ("cpu", {"VLA_BACKEND": "cuda"}, "ascend", "cpu", "--backend"),
        (None, {"VLA_BACKEND": "cuda"}, "ascend", "cuda", "VLA_BACKEND"),
        (None, {}, "ascend", "ascend", "config"),
    ],
)
def test_authority(flag, env, config, expected, why) -> None:
    chosen = choose(flag, env, config)
    assert chosen.name == expected
    assert why in chosen.why


def test_flag_auto_overrides_the_lower_levels() -> None:
    assert choose("auto", {"VLA_BACKEND": "cuda"}, "ascend").why.startswith("automatic")


def test_explicit_choice_does_not_import_the_others(install) -> None:
    install("broken", "raise RuntimeError('must not be imported')")
    assert choose("cpu", {}).name == "cpu"


def test_automatic_prefers_an_accelerator_and_says_why(install) -> None:
    install("mychip")
    chosen = choose(None, {})
    assert chosen.name == "mychip"
    assert "test device" in chosen.why
    assert "cuda: " in chosen.why  # what was refused, with the reason


def test_automatic_passes_over_a_broken_plugin_with_its_reason(install) -> None:
    install("broken", "import a_module_that_does_not_exist")
    chosen = choose(None, {})
    assert chosen.name == "cpu"
    assert "a_module_that_does_not_exist" in chosen.why


def test_automatic_does_not_guess_between_two(install) -> None:
    install("chipa")
    install("chipb")
    with pytest.raises(AmbiguousBackend, match="--backend chip"):
        choose(None, {})


def test_nothing_available(install, monkeypatch) -> None:
    from vla_backend import discovery

    install("mychip", ABSENT)
    only = {"mychip": candidates()["mychip"]}
    monkeypatch.setattr(discovery, "candidates", lambda: only)
    with pytest.raises(BackendUnavailable, match="no device files"):
        choose(None, {})


def test_import_failure_is_chained(install) -> None:
    install("broken", "import a_module_that_does_not_exist")
    with pytest.raises(PluginLoadError, match=r"vla-broken 1\.2") as error:
        candidates()["broken"].load()
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
