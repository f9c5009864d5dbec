"""Mistakes in the phase before torch; nothing of these chips is in the machine."""

from __future__ import annotations

import os

from tests.conformance.broken.sound import Absent
from vla_backend import (
    BackendInfo,
    ConfigIssue,
    DeepSpeedTuning,
    Explanation,
    LoaderDefaults,
    Probe,
    Unsupported,
    VideoContext,
    hookimpl,
)


class MisspeltHook(Absent):
    @hookimpl
    def pin_memry_ok():
        return False


class UnknownArgument(Absent):
    @hookimpl
    def video_ctx(colour):
        return VideoContext(("pyav",))


class MissingHook(Absent):
    dist_backend = None


class OtherApi(Absent):
    @hookimpl
    def backend_info():
        return BackendInfo(device_type="mychip", vendor="Test", api="2.0")


class UnmarkedHook(Absent):
    def pin_memory_ok():
        return True


class NoneAnswer(Absent):
    @hookimpl
    def pin_memory_ok():
        return None


class WrongType(Absent):
    @hookimpl
    def dist_backend():
        return ["gloo"]


class RaisingHook(Absent):
    @hookimpl
    def video_ctx(machine):
        return {"x86_64": VideoContext(("pyav",))}[machine]


class TorchInProbe(Absent):
    @hookimpl
    def probe(env):
        import torch

        return Probe(ok=torch.accelerator.is_available(), reason="torch says so", remedy="plug one in", device_count=1)


class NumpyInHook(Absent):
    @hookimpl
    def dataloader_defaults(cpu_count):
        import numpy as np

        return LoaderDefaults("spawn", int(np.minimum(4, cpu_count)))


class SetsEnvironment(Absent):
    @hookimpl
    def env_defaults(config, env):
        os.environ["MYCHIP_QUEUE"] = "2"
        return {}


class ChangesConfig(Absent):
    @hookimpl
    def tune_deepspeed(config):
        config["zero_optimization"]["overlap_comm"] = False
        return DeepSpeedTuning(config, ("overlap_comm: off, the chip has one queue",))


class ChangesEnvArgument(Absent):
    @hookimpl
    def check_config(config, env):
        env.setdefault("MYCHIP_QUEUE", "2")
        return []


class CountsCalls(Absent):
    calls = 0

    @hookimpl
    def video_ctx(machine):
        CountsCalls.calls += 1
        return VideoContext(("pyav",), threads=CountsCalls.calls)


class KnowsItsProcess(Absent):
    @hookimpl
    def video_ctx(machine):
        return VideoContext(("pyav",), threads=os.getpid())


class ProbeNeedsEnvironment(Absent):
    @hookimpl
    def probe(env):
        return Probe(ok=False, reason=f"no mychip on {env['PATH']}", remedy="plug one in")


class ProbeWithoutReason(Absent):
    @hookimpl
    def probe(env):
        return Probe(ok=False, reason="", remedy="plug one in")


class ProbeWithoutRemedy(Absent):
    @hookimpl
    def probe(env):
        return Probe(ok=False, reason="no mychip here")


class IgnoresMask(Absent):
    @hookimpl
    def visible_devices_env():
        return "MYCHIP_VISIBLE_DEVICES"

    @hookimpl
    def probe(env):
        return Probe(ok=True, reason="8 x /dev/mychip<n>", device_count=8)


class NumbersInEnvironment(Absent):
    @hookimpl
    def env_defaults(config, env):
        return {"MYCHIP_QUEUE": 2}


class ChangesStage(Absent):
    @hookimpl
    def tune_deepspeed(config):
        zero = {**config["zero_optimization"], "stage": 2}
        return DeepSpeedTuning({**config, "zero_optimization": zero}, ("stage 3 is slow here",))


class TunesInSilence(Absent):
    @hookimpl
    def tune_deepspeed(config):
        return DeepSpeedTuning({**config, "zero_optimization": {**config["zero_optimization"], "overlap_comm": False}})


class LosesSettings(Absent):
    @hookimpl
    def tune_deepspeed(config):
        kept = ("zero_optimization", "bf16", "fp16")
        return DeepSpeedTuning({key: config[key] for key in kept}, ("only what matters",))


class TranslatorRaises(Absent):
    @hookimpl
    def translate_error(error):
        return Explanation(known="507033" in error.args[0], what="The chip hangs.", why="Heat.", remedy="Cool it.")


class ExplainsHalf(Absent):
    @hookimpl
    def translate_error(error):
        return Explanation(known=isinstance(error, OSError), what="Something about a file.")


class UnknownDecoder(Absent):
    @hookimpl
    def video_ctx(machine):
        return VideoContext(("mychip_decoder", "pyav"))


class UnknownStartMethod(Absent):
    @hookimpl
    def dataloader_defaults(cpu_count):
        return LoaderDefaults("thread", min(2, cpu_count))


class TooManyWorkers(Absent):
    @hookimpl
    def dataloader_defaults(cpu_count):
        return LoaderDefaults("spawn", 16)


class FatalFinding(Absent):
    @hookimpl
    def check_config(config, env):
        return [ConfigIssue("fatal", "parallel.processes", "too many", "fewer")]


class ErrorWithoutRemedy(Absent):
    @hookimpl
    def check_config(config, env):
        return [ConfigIssue("error", "parallel.processes", "too many")]


class UnsupportedWithoutReason(Absent):
    @hookimpl
    def compile_backend():
        return Unsupported("")
