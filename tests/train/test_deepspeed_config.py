"""The DeepSpeed configuration: complete, merged with the user's, and with one owner per setting."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.train import toy
from vla_train.train.deepspeed_config import deepspeed_config
from vla_train.train.errors import TrainError


def _config(tmp_path, deepspeed=None, **changes):
    return toy.config(tmp_path, parallel__deepspeed=deepspeed, **{"parallel__strategy": "zero2", **changes})


@pytest.mark.parametrize(("strategy", "stage"), [("zero2", 2), ("zero3", 3)])
def test_what_the_run_says_is_in_it(tmp_path, strategy, stage):
    config = _config(tmp_path, parallel__strategy=strategy, train__gradient_accumulation_steps=3)
    config.parallel.mixed_precision = "bf16"
    made = deepspeed_config(config, world_size=8)
    assert made["zero_optimization"]["stage"] == stage
    assert made["train_micro_batch_size_per_gpu"] == 4
    assert made["gradient_accumulation_steps"] == 3
    assert made["train_batch_size"] == 4 * 3 * 8
    assert made["gradient_clipping"] == 1.0
    assert (made["bf16"]["enabled"], made["fp16"]["enabled"]) == (True, False)
    config.train.gradient_clipping = None
    assert deepspeed_config(config, 8)["gradient_clipping"] == 0.0


def test_the_users_settings_are_merged(tmp_path):
    theirs = {
        "zero_optimization": {"reduce_bucket_size": 100, "stage": "auto", "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": "auto"},
        "wall_clock_breakdown": True,
    }
    made = deepspeed_config(_config(tmp_path, theirs), 2)
    assert made["zero_optimization"]["reduce_bucket_size"] == 100
    assert made["zero_optimization"]["stage"] == 2
    assert made["zero_optimization"]["overlap_comm"] is True
    assert made["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert made["bf16"]["enabled"] is False
    assert made["wall_clock_breakdown"] is True
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(theirs))
    assert deepspeed_config(_config(tmp_path, str(file)), 2) == made


@pytest.mark.parametrize(
    ("theirs", "owner"),
    [
        ({"bf16": {"enabled": True}}, "parallel.mixed_precision"),
        ({"fp16": {"enabled": True}}, "parallel.mixed_precision"),
        ({"torch_autocast": {"enabled": True}}, "parallel.mixed_precision"),
        ({"zero_optimization": {"stage": 3}}, "parallel.strategy"),
        ({"gradient_clipping": 0.5}, "train.gradient_clipping"),
        ({"gradient_accumulation_steps": 2}, "train.gradient_accumulation_steps"),
        ({"train_micro_batch_size_per_gpu": 1}, "data.batch_size"),
        ({"optimizer": {"type": "Adam"}}, "train.optimizer"),
        ({"scheduler": {"type": "WarmupLR"}}, "train.scheduler"),
    ],
)
def test_a_setting_with_two_owners_is_an_error(tmp_path, theirs, owner):
    with pytest.raises(TrainError) as error:
        deepspeed_config(_config(tmp_path, theirs), 2)
    assert owner in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(TrainError, match=r"nothing\.json"):
        deepspeed_config(_config(tmp_path, str(tmp_path / "nothing.json")), 2)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(TrainError, match=r"broken\.json"):
        deepspeed_config(_config(tmp_path, str(tmp_path / "broken.json")), 2)


def test_the_launcher_can_check_without_torch():
    code = "import sys, vla_train.train.deepspeed_config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
