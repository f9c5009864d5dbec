"""GR00T on a backend: the recorded steps of the published trainer, recorded actions, and a run of the engine.

`groot_runs.py BACKEND` writes BACKEND.json and the run folder BACKEND/run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from safetensors.torch import load_file

from tests.models.groot import jobs, recorded
from tests.models.groot.conftest import DATA, part
from vla_backend import activate
from vla_groot.checkpoint import load_model
from vla_train.nn import ReplayDraws

NAME, HERE = sys.argv[1], Path.cwd()


def actions(dtype: str) -> dict[str, object]:
    """Normalised actions of the recorded observations, from the recorded noise."""
    model = load_model(DATA / "checkpoint", backend, dtype=backend.compute_dtype(dtype)).to(backend.device).eval()
    model.draws = ReplayDraws.from_tensors(load_file(DATA / "full_action.safetensors"))
    batch = backend.to_device(part(load_file(DATA / "processor_batch.safetensors"), "batch."))
    batch.pop("action")
    with backend.evaluating(model):
        found = model.get_action(batch)
    return {"device": str(found.device), "values": backend.to_numpy(found.float()).tolist()}


backend = activate(NAME)
backend.load_stack()
backend.local_device(0)
backend.apply_patches()
os.chdir(DATA)  # the backbone's path in the recorded configurations is relative
model, steps = recorded.six_steps(backend, detached=True)
norms = {name: value.norm().item() for name, value in model.full_state_dict().items()}
result = {"steps": steps.each, "norms": norms, "fp32": actions("fp32"), "bf16": actions("bf16")}
(HERE / f"{NAME}.json").write_text(json.dumps(result))
(HERE / NAME).mkdir()
jobs.train(HERE / NAME, 0, ["data.holdout_episodes=1", "train.eval_interval=4"], alike=True, backend=NAME)
