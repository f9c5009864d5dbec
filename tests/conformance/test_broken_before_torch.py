"""The kit fails every plugin with a mistake before torch, at the check that is about it, and names the mistake."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.broken import before_torch
from vla_backend import Candidate
from vla_train.conformance import run

ROOT = Path(__file__).parents[2]
MODULE = "tests.conformance.broken.before_torch"

#: Class -> the check that fails, what its message says, and checks that the same mistake fails as well.
MISTAKES = {
    "MisspeltHook": ("registers", r"'pin_memry_ok', which is not a hook(.|\n)*did you mean 'pin_memory_ok'"),
    "UnknownArgument": ("registers", r"colour"),
    "MissingHook": ("registers", r"does not implement 'dist_backend'"),
    "OtherApi": ("registers", r"written for API 2\.0(.|\n)*upgrade"),
    "UnmarkedHook": ("every_hook_is_marked", r"'pin_memory_ok' is named like a hook(.|\n)*put @hookimpl above"),
    "NoneAnswer": ("answers", r"'pin_memory_ok'.*answered None"),
    "WrongType": ("answers", r"'dist_backend'.*\['gloo'\](.|\n)*says str"),
    "RaisingHook": ("answers", r"video_ctx raises KeyError: KeyError\('aarch64'\)(.|\n)*video_ctx\('aarch64'\)"),
    "TorchInProbe": ("phases", r"'probe' imports torch(.|\n)*pre-import"),
    "NumpyInHook": ("phases", r"'dataloader_defaults' imports numpy"),
    "SetsEnvironment": ("environment_is_untouched", r"env_defaults changes os.environ: MYCHIP_QUEUE"),
    "ChangesConfig": ("arguments_are_untouched", r"tune_deepspeed changes its argument(.|\n)*deepcopy"),
    "ChangesEnvArgument": ("arguments_are_untouched", r"check_config changes its argument(.|\n)*argument 2"),
    "CountsCalls": (
        "answers_are_stable",
        r"video_ctx answers.*differently(.|\n)*threads=1.*=2",
        "fork_and_spawn",
    ),
    "KnowsItsProcess": ("fork_and_spawn", r"video_ctx answers differently in a forked child"),
    "ProbeNeedsEnvironment": (
        "absent_hardware",
        r"probe raises.*KeyError: KeyError\('PATH'\)(.|\n)*empty environment",
    ),
    "ProbeWithoutReason": ("answers", r"a probe without a reason", "absent_hardware"),
    "ProbeWithoutRemedy": ("answers", r"no without a remedy(.|\n)*no mychip here", "absent_hardware"),
    "IgnoresMask": ("absent_hardware", r"although the mask hides every device(.|\n)*MYCHIP_VISIBLE_DEVICES=''"),
    "NumbersInEnvironment": ("answers", r"'MYCHIP_QUEUE' is set to 2, which is no text"),
    "ChangesStage": ("answers", r"changes zero_optimization.stage from 3 to 2"),
    "TunesInSilence": ("answers", r"changes settings without saying so"),
    "LosesSettings": ("answers", r"loses the settings .*train_batch_size"),
    "TranslatorRaises": ("answers", r"translate_error raises IndexError"),
    "ExplainsHalf": ("answers", r"an explanation with an empty part"),
    "UnknownDecoder": ("answers", r"decoders that the engine does not have: 'mychip_decoder'"),
    "UnknownStartMethod": ("answers", r"start_method 'thread'"),
    "TooManyWorkers": ("answers", r"16 data workers for 1 processors"),
    "FatalFinding": ("answers", r"level 'fatal'"),
    "ErrorWithoutRemedy": ("answers", r"error about parallel.processes without a remedy"),
    "UnsupportedWithoutReason": ("answers", r"compile_backend(.|\n)*gives no reason"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, str]]]:
    names = [f"{MODULE}:{name}" for name in MISTAKES] + ["tests.conformance.broken.sound:Absent"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.light", *names], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found_and_named(found, name) -> None:
    check, says, *also = MISTAKES[name]
    failed = {one["name"]: one["message"] for one in found[f"{MODULE}:{name}"] if one["outcome"] == "failed"}
    assert check in failed, found[f"{MODULE}:{name}"]
    assert re.search(says, failed[check]), failed[check]
    assert set(failed) == {check, *also}, failed


def test_sound_plugin_passes(found) -> None:
    results = found["tests.conformance.broken.sound:Absent"]
    assert {one["outcome"] for one in results} == {"passed"}, results


def test_every_broken_plugin_is_tried() -> None:
    own = {name for name, value in vars(before_torch).items() if inspect.isclass(value) and value.__module__ == MODULE}
    assert own == set(MISTAKES)


@pytest.mark.parametrize(
    ("module", "check", "says"),
    [
        ("torch_at_import", "cold_import", r"Importing the plugin imports (\w+, )*torch"),
        ("slow_at_import", "cold_import", r"Importing the plugin takes \d{3,} ms, the limit is 200 ms"),
        ("fails_at_import", "registers", r"torch_mychip_that_is_not_installed"),
    ],
)
def test_mistake_at_import(module, check, says, child_path) -> None:
    candidate = Candidate("mychip", "vla-broken", "1.0", f"tests.conformance.broken.{module}:plugin")
    results = run(candidate, ["contract"], ["registers", "cold_import"])
    failed = {one.name: one.message for one in results if one.outcome == "failed"}
    assert list(failed) == [check], results
    assert re.search(says, failed[check]), failed
