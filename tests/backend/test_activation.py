from __future__ import annotations

import pluggy
import pytest

from vla_backend import activate, hookimpl
from vla_backend.errors import (
    ApiMismatch,
    BackendUnavailable,
    BadAnswer,
    HookNameError,
    HookSignatureError,
    MissingHook,
    PluginLoadError,
    UnsupportedError,
)


def ready(name: str):
    backend = activate(name)
    backend.load_stack()
    backend.local_device(0)
    return backend


def test_plugin_answers_before_the_default(install) -> None:
    backend = activate(install("mychip", "@hookimpl\ndef pin_memory_ok():\n    return True\n"))
    assert backend.pin_memory_ok is True
    assert backend.providers()["pin_memory_ok"] == "mychip"
    assert backend.providers()["video_ctx"] == "default"


def test_package_with_modules_named_as_the_groups(install) -> None:
    from tests.backend.conftest import MINIMAL

    backend = activate(
        install(
            "mychip",
            files={
                "__init__.py": "",
                "identity.py": MINIMAL,
                "data.py": "from vla_backend import hookimpl\n@hookimpl\ndef pin_memory_ok():\n    return True\n",
            },
        )
    )
    assert backend.pin_memory_ok is True
    assert backend.dist_backend == "gloo"


def test_group_module_that_fails_to_import_is_named(install) -> None:
    name = install("mychip", files={"__init__.py": "", "identity.py": "import a_module_that_does_not_exist"})
    with pytest.raises(PluginLoadError, match=r"identity.*\n.*a_module_that_does_not_exist"):
        activate(name)


def test_misspelt_hook(install) -> None:
    name = install("mychip", "@hookimpl\ndef pin_memry_ok():\n    return True\n")
    with pytest.raises(HookNameError, match="did you mean 'pin_memory_ok'") as error:
        activate(name)
    assert "pin_memry_ok" in error.value.what
    assert "vla-mychip 1.2" in error.value.what


def test_unknown_argument(install) -> None:
    name = install("mychip", "@hookimpl\ndef pin_memory_ok(colour):\n    return True\n")
    with pytest.raises(HookSignatureError, match="colour"):
        activate(name)


def test_missing_required_hook(install) -> None:
    name = install("mychip", base="from vla_backend import hookimpl\n")
    with pytest.raises(MissingHook, match="backend_info"):
        activate(name)


@pytest.mark.parametrize("answer", ["None", "'yes'", "object()"])
def test_none_and_wrong_types(install, answer) -> None:
    backend = activate(install("mychip", f"@hookimpl\ndef pin_memory_ok():\n    return {answer}\n"))
    with pytest.raises(BadAnswer, match=r"pin_memory_ok.*mychip"):
        _ = backend.pin_memory_ok


def test_none_for_a_context(install) -> None:
    backend = ready(install("mychip", "@hookimpl\ndef fp32_region():\n    return None\n" + CPU_DEVICE))
    with pytest.raises(BadAnswer, match="fp32_region"):
        backend.fp32_region()


def test_unsupported_quotes_the_reason(install) -> None:
    code = """
    from vla_backend import Unsupported

    @hookimpl
    def compute_dtype(requested):
        return Unsupported("the chip has no bfloat16", remedy="use fp32")
    """
    backend = ready(install("mychip", __import__("textwrap").dedent(code) + CPU_DEVICE))
    with pytest.raises(UnsupportedError, match=r"bf16(.|\n)*no bfloat16(.|\n)*use fp32"):
        backend.compute_dtype("bf16")


def test_unavailable_backend_stops_with_reason_and_remedy(install) -> None:
    code = (
        "@hookimpl\ndef probe():\n    return Probe(ok=False, reason='no device files', remedy='install the driver')\n"
    )
    name = install("mychip", code)
    with pytest.raises(BackendUnavailable, match=r"no device files(.|\n)*install the driver"):
        activate(name)
    assert activate(name, check_available=False).info.vendor == "test"


@pytest.mark.parametrize(("api", "upgrade"), [("0.9", "vla-mychip"), ("2.0", "vla-backend")])
def test_incompatible_api(install, api, upgrade) -> None:
    code = f"@hookimpl\ndef backend_info():\n    return BackendInfo('cpu', 'test', api='{api}')\n"
    with pytest.raises(ApiMismatch, match=f"upgrade '{upgrade}'"):
        activate(install("mychip", code))


def test_newer_minor_api_warns(install) -> None:
    code = "@hookimpl\ndef backend_info():\n    return BackendInfo('cpu', 'test', api='1.99')\n"
    name = install("mychip", code)
    with pytest.warns(UserWarning, match=r"1\.99"):
        activate(name)


CPU_DEVICE = """
@hookimpl
def local_device():
    import torch
    return torch.device("cpu")
"""


def test_observer_sees_calls_and_changes_nothing(install) -> None:
    seen: list[str] = []

    class Tracer:
        @hookimpl(wrapper=True)
        def dist_backend(self):
            answer = yield
            seen.append(answer)
            return answer

        @hookimpl(wrapper=True)
        def synchronize(self, device):
            seen.append(str(device))
            return (yield)

    backend = activate("cpu", observers=[Tracer()])
    backend.load_stack()
    backend.local_device(0)
    assert backend.dist_backend == "gloo"
    backend.synchronize()
    assert seen == ["gloo", "cpu"]


def test_observer_must_not_answer() -> None:
    class Answerer:
        @hookimpl
        def dist_backend(self):
            return "mpi"

    with pytest.raises(HookSignatureError, match="only the chosen backend may answer"):
        activate("cpu", observers=[Answerer()])


def test_pluggy_is_recent_enough_to_roll_back_a_bad_plugin() -> None:
    # Before 1.7 a plugin that failed validation stayed half registered and went on answering.
    assert tuple(int(part) for part in pluggy.__version__.split(".")[:2]) >= (1, 7)
