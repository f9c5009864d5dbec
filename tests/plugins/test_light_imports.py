"""A plugin is looked at on every machine, so looking must be cheap and must not load another vendor's packages."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOOK = """
import json, sys, time
from vla_backend import activate  # the contract itself is not measured
before, start = set(sys.modules), time.perf_counter()
backend = activate({name!r}, check_available=False)
for call in (lambda: backend.probe({{}}), lambda: backend.check_config({{}}, {{}}),
             lambda: backend.visible_devices_env, lambda: backend.pin_memory_ok, lambda: backend.dist_backend,
             lambda: backend.dataloader_defaults, lambda: backend.video_ctx, lambda: backend.tune_deepspeed({{}}),
             lambda: backend.translate_error(RuntimeError("x"))):
    call()
seconds = time.perf_counter() - start
backend.env_defaults({{"parallel": {{"processes": 2}}}}, {{}})
print(json.dumps([seconds, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


@pytest.mark.parametrize("name", ["cpu", "cuda", "ascend"])
def test_looking_at_a_backend_imports_no_torch(name) -> None:
    runs = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", LOOK.format(name=name)], capture_output=True, text=True, check=True
        )
        seconds, modules = json.loads(done.stdout)
        runs.append(seconds)
        heavy = {"torch", "torch_npu", "mx_driving", "deepspeed", "numpy", "transformers", "diffusers", "psutil"}
        assert not heavy & set(modules)
        others = {"vla_backend_cpu", "vla_backend_cuda", "vla_backend_ascend"} - {f"vla_backend_{name}"}
        assert not others & set(modules)
        if min(runs) < 0.2:
            break
    assert min(runs) < 0.2
