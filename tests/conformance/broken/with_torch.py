"""Mistakes in the later phases; the device is the processor."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

from tests.conformance.broken.sound import Present
from vla_backend import BackendInfo, MemoryStats, OptimizerChoice, Probe, hookimpl


class SaysNothingLoaded(Present):
    @hookimpl
    def load_stack():
        import torch  # noqa: F401

        return ()


class EarlyDevice(Present):
    @hookimpl
    def backend_info():
        return BackendInfo(device_type="mychip", vendor="Test")

    @hookimpl
    def apply_patches():
        import torch

        torch.mychip = SimpleNamespace(is_initialized=lambda: True)
        return ()


class OtherPrecision(Present):
    @hookimpl
    def compute_dtype(requested):
        import torch

        return torch.float32


class ChangesDefaultPrecision(Present):
    @hookimpl
    def matmul_precision(level):
        import torch

        torch.set_float32_matmul_precision("high")
        return {}


class UnknownOptimizer(Present):
    @hookimpl
    def fused_optimizer(name):
        return OptimizerChoice(f"torch.optim:MyChip{name}")


class SharesDevices(Present):
    @hookimpl
    def probe(env):
        return Probe(ok=True, reason="one device", device_count=1)


class StumblesOverRanks(Present):
    @hookimpl
    def probe(env):
        return Probe(ok=True, reason="one device", device_count=1)

    @hookimpl
    def local_device(device_type, local_rank):
        import torch

        devices = {0: torch.device(device_type)}
        return torch.device(devices.get(local_rank).type)


class OtherDevice(Present):
    @hookimpl
    def local_device():
        import torch

        return torch.device("meta")


class NoContext(Present):
    @hookimpl
    def fp32_region(device_type):
        return None


class EmptyRegion(Present):
    @hookimpl
    def fp32_region(device_type):
        return contextlib.nullcontext()


class ShortRegion(Present):
    @hookimpl
    def fp32_region(device_type):
        import torch

        return torch.autocast(device_type, dtype=torch.bfloat16)


class AutocastElsewhere(Present):
    @hookimpl
    def autocast_device(device_type):
        return "cuda"


class InferenceMode(Present):
    @hookimpl
    def zero3_safe_no_grad(model):
        import torch

        return torch.inference_mode()


class EvaluatesWithGradients(Present):
    @hookimpl
    def zero3_safe_no_grad(model):
        return contextlib.nullcontext()


class HalvesNumbers(Present):
    @hookimpl
    def to_numpy(tensor):
        host = tensor.detach().cpu()
        return (host.half() if host.is_floating_point() else host).numpy()


class PlainNumpy(Present):
    @hookimpl
    def to_numpy(tensor):
        return tensor.cpu().numpy()


class NarrowsFloat64(Present):
    @hookimpl
    def safe_dtype(dtype):
        import torch

        return torch.float32 if dtype is torch.float64 else dtype


class PinsInVain(Present):
    @hookimpl
    def pin_memory_ok():
        return True


class ForgetsGenerator(Present):
    @hookimpl
    def rng_state(device):
        return {}

    @hookimpl
    def set_rng_state(device, state):
        return None


class DrawsForState(Present):
    @hookimpl
    def rng_state(device):
        import torch

        torch.rand(1)
        return {"cpu": torch.get_rng_state()}


class SeedForState(Present):
    @hookimpl
    def rng_state(device):
        import torch

        return {"cpu": torch.tensor(torch.initial_seed())}

    @hookimpl
    def set_rng_state(device, state):
        import torch

        torch.manual_seed(int(state.get("cpu", 0)))


class StrictGenerators(Present):
    @hookimpl
    def set_rng_state(device, state):
        import torch

        for name, value in state.items():
            {"cpu": torch.set_rng_state}[name](value)


class SamplesNowhere(Present):
    @hookimpl
    def sampling_device(device, distribution):
        import torch

        return torch.device("meta")


class Mebibytes(Present):
    @hookimpl
    def memory_stats(device, reset_peak):
        import psutil

        now = psutil.Process().memory_info().rss >> 20
        return MemoryStats(now, now, now, psutil.virtual_memory().total >> 20)


class ForgetsWeights(Present):
    @hookimpl
    def load_sharded(state, directory):
        return None


class StumblesOverFiles(Present):
    @hookimpl
    def load_sharded(state, directory):
        from vla_backend.defaults.train import load_sharded

        files = {path.name: path for path in Path(directory).iterdir()}
        _ = files.get("state-00000-of-00001.safetensors").stem
        load_sharded(state, directory)


class DropsOptimizer(Present):
    @hookimpl
    def save_sharded(state, directory):
        from safetensors.torch import save_file

        kept = {name: tensor.clone() for name, tensor in state.tensors().items() if name.startswith("model.")}
        save_file(kept, str(Path(directory) / "state-00000-of-00001.safetensors"))
        return ["state-00000-of-00001.safetensors"]


class NamesNoFiles(Present):
    @hookimpl
    def save_sharded(state, directory):
        from vla_backend.defaults import sharded

        sharded.save(state, directory)
        return []


class HostInDisguise(Present):
    """Says it is a chip, and computes everything on the host."""

    @hookimpl
    def backend_info():
        return BackendInfo(device_type="xpu", vendor="Test")
