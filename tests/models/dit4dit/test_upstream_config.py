"""Upstream's configuration files and launch-script overrides become complete configurations, and back."""

from __future__ import annotations

import copy

import pytest
import yaml

from vla_dit4dit.config import ConfigError
from vla_dit4dit.upstream_config import (
    INEFFECTIVE,
    SPECIAL,
    SUBTREES,
    TABLE,
    UPSTREAM_BEHAVIOUR,
    to_upstream,
    translate,
)
from vla_train.config.load import load_config
from vla_train.config.typed import plain

# What the launch scripts pass.
LAUNCH_TEXT = """
--framework.name DiT4DiT --framework.cosmos25.base_model /models/cosmos
--framework.action_model.action_model_type DiT-L --datasets.vla_data.data_root_dir /data/libero
--datasets.vla_data.data_mix libero_all --datasets.vla_data.per_device_batch_size 4
--trainer.freeze_modules backbone_interface.extractor.text_encoder,backbone_interface.extractor.vae
--trainer.max_train_steps 80000 --trainer.learning_rate.backbone_interface 1e-5
--framework.cosmos25.flow_matching.time_distribution uniform
--framework.cosmos25.flow_matching.high_sigma_ratio null --framework.cosmos25.flow_matching.high_sigma_min null
--trainer.framework.cosmos25.conditional_frame_timestep 0.0001
--run_root_dir ./playground --run_id libero_all --wandb_project DiT4DiT_libero --wandb_entity me
"""
LAUNCH = LAUNCH_TEXT.split()


@pytest.fixture
def upstream(data_folder):
    return yaml.safe_load((data_folder / "upstream_libero.yaml").read_text())


@pytest.mark.filterwarnings("ignore:video_backend")
def test_file_and_launch_script(data_folder):
    config, _ = load_config([data_folder / "upstream_libero.yaml"], LAUNCH)
    model = config.model
    assert (model.mode, model.repeated_diffusion_steps, model.backbone.extract_layer) == ("joint", 4, 17)
    assert model.backbone.path == "/models/cosmos"
    assert model.backbone.conditional_frame_timestep == 0.0001
    flow = model.backbone.flow_matching
    assert (flow.time_distribution, flow.high_sigma_ratio, flow.high_sigma_min) == ("uniform", None, None)
    # Upstream loads bfloat16; trained weights stay float32 here and compute in bfloat16.
    backbone = model.backbone
    assert (backbone.dtype, backbone.frozen_dtype, backbone.time_dtype) == ("float32", "bfloat16", "bfloat16")
    assert config.parallel.mixed_precision == "bf16"
    head = model.action_head
    assert (head.size, head.heads, head.head_dim, head.num_layers) == ("DiT-L", 32, 48, 16)
    assert (head.action_horizon, head.action_dim, head.state_dim, head.cross_attention_dim) == (8, 8, 16, 2048)
    assert (config.run.id, config.run.root, config.run.wandb_project) == (
        "libero_all",
        "./playground",
        "DiT4DiT_libero",
    )
    assert (config.data.root, config.data.mixture, config.data.batch_size) == ("/data/libero", "libero_all", 4)
    assert config.data.video_delta_indices == list(range(9))
    assert config.train.max_steps == 80000
    assert config.train.freeze == ["backbone_interface.extractor.text_encoder", "backbone_interface.extractor.vae"]
    assert config.train.learning_rate == {"base": 1e-5, "backbone_interface": 1e-5, "action_model": 1e-4}
    assert (config.train.scheduler.name, config.train.scheduler.min_lr) == ("cosine_with_min_lr", 5e-7)
    # Upstream's behaviour where a result depends on it.
    assert config.train.scheduler.floor == "base"
    assert not config.data.reshuffle_each_epoch
    assert not config.data.mask_padded_actions


@pytest.mark.filterwarnings("ignore:video_backend")
def test_native_sections_win(upstream):
    native = translate({**upstream, "parallel": {"strategy": "zero2", "mixed_precision": "fp32"}})
    assert native["parallel"] == {"strategy": "zero2", "mixed_precision": "fp32"}


def test_other_layouts_are_left_alone():
    assert translate({"model": {"name": "dit4dit"}}) is None
    assert translate({"framework": {"name": "QwenGR00T"}}) is None
    assert translate({"framework": "pytorch"}) is None


def test_upstream_defaults_count():
    """Keys that are absent get the defaults of upstream's code, which differ from its files and from ours."""
    backbone = translate({"framework": {"name": "DiT4DiT"}})["model"]["backbone"]
    wanted = {
        "extract_layer": 19,
        "future_loss_type": "pixel_l1",
        "future_num_inference_steps": 2,
        "conditional_frame_timestep": 0.001,
        "frozen_dtype": "bfloat16",
    }
    assert {key: backbone[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("framework.cosmos25.extract_layr", 3, "did you mean framework.cosmos25.extract_layer"),
        ("trainer.max_steps", 3, "trainer.max_"),
        ("framework.action_model.future_action_window_size", 15, "must equal the horizon"),
        ("datasets.vla_data.lerobot_version", "v1.6", "v2.0"),
        ("datasets.vla_data.delete_pause_frame", True, "supported"),
        ("datasets.vla_data.dataset_py", "rlds_datasets", "lerobot_datasets"),
    ],
)
@pytest.mark.filterwarnings("ignore:video_backend")
def test_what_cannot_be_honoured_is_an_error(upstream, key, value, message):
    *parents, last = key.split(".")
    tree = upstream
    for parent in parents:
        tree = tree[parent]
    tree[last] = value
    with pytest.raises(ConfigError, match=message):
        translate(upstream)


@pytest.mark.filterwarnings("ignore:video_backend")
@pytest.mark.parametrize("section", ["framework.cosmos25.flow_matching", "trainer.loss_scale", "trainer.learning_rate"])
def test_sections_that_are_null_say_nothing(upstream, section):
    *parents, last = section.split(".")
    tree = upstream
    for parent in parents:
        tree = tree[parent]
    tree.pop(last, None)
    without = translate(copy.deepcopy(upstream))
    tree[last] = None
    assert translate(upstream) == without


@pytest.mark.filterwarnings("ignore:video_backend")
def test_names_that_mean_the_same_upstream(upstream):
    head = upstream["framework"]["action_model"]["diffusion_model_cfg"]
    head |= {"norm_type": "ada_norm_zero", "positional_embeddings": "rope", "activation_fn": "swiglu"}
    upstream["datasets"]["vla_data"]["lerobot_version"] = "v3.0"
    found = translate(upstream)["model"]["action_head"]
    assert (found["norm_type"], found["positional_embeddings"], found["activation_fn"]) == (
        "layer_norm",
        None,
        "swiglu",
    )


@pytest.mark.filterwarnings("ignore:video_backend")
def test_arguments_of_the_schedule(data_folder, upstream):
    launch = "--trainer.lr_scheduler_type cosine_with_restarts --trainer.scheduler_specific_kwargs.num_cycles 3"
    config, _ = load_config([data_folder / "upstream_libero.yaml"], launch.split())
    assert (config.train.scheduler.min_lr, config.train.scheduler.arguments) == (5e-7, {"num_cycles": 3})
    back = to_upstream(plain(config))
    assert back["trainer"]["scheduler_specific_kwargs"] == {"min_lr": 5e-7, "num_cycles": 3}


def test_unknown_loss_type_means_pixel_l1(upstream):
    del upstream["datasets"]["vla_data"]["video_backend"]
    upstream["framework"]["cosmos25"]["future_loss_type"] = "l1"
    with pytest.warns(UserWarning, match="pixel_l1"):
        assert translate(upstream)["model"]["backbone"]["future_loss_type"] == "pixel_l1"


def test_unknown_dtypes_mean_bfloat16(upstream):
    del upstream["datasets"]["vla_data"]["video_backend"]
    upstream["framework"]["cosmos25"]["torch_dtype"] = "fp32"
    with pytest.warns(UserWarning, match="bfloat16"):
        assert translate(upstream)["model"]["backbone"]["frozen_dtype"] == "bfloat16"
    upstream["framework"]["cosmos25"]["torch_dtype"] = "Float32"
    assert translate(upstream)["model"]["backbone"]["frozen_dtype"] == "float32"


@pytest.mark.parametrize("key", sorted(INEFFECTIVE))
@pytest.mark.filterwarnings("ignore:video_backend")
def test_ineffective_keys_change_nothing(upstream, key):
    changed = copy.deepcopy(upstream)
    *parents, last = key.split(".")
    tree = changed
    for parent in parents:
        tree = tree[parent]
    tree[last] = "something else"
    assert translate(changed) == translate(upstream)


def test_every_name_exists(data_folder):
    """The right-hand side of the table is the schema's."""
    config, sources = load_config([data_folder / "upstream_libero.yaml"])
    assert any("video_backend 'torchvision_av'" in note for note in sources.notes)
    tree = plain(config)
    for key in [*(row.native for row in TABLE), *SUBTREES.values(), *UPSTREAM_BEHAVIOUR]:
        *parents, last = key.split(".")
        section = tree
        for parent in parents:
            section = section[parent]
        assert last in section or key.startswith("train.loss_weights"), key
    names = [row.upstream for row in TABLE] + list(SUBTREES) + list(INEFFECTIVE) + list(SPECIAL)
    assert len(set(names)) == len(names)


@pytest.mark.filterwarnings("ignore:video_backend")
def test_there_and_back(data_folder, upstream, upstream_facts):
    config, _ = load_config([data_folder / "upstream_libero.yaml"], LAUNCH)
    written = to_upstream(plain(config))
    again = translate(written)
    assert translate(to_upstream(again | {"run": again["run"]})) == again
    for section in ("backbone", "action_head"):
        ours = plain(config)["model"][section]
        assert {key: ours[key] for key in again["model"][section]} == again["model"][section]

    def missing(wanted, found, prefix=""):
        for key, value in wanted.items():
            if key not in found:
                yield prefix + key
            elif isinstance(value, dict):
                yield from missing(value, found[key], f"{prefix}{key}.")

    # Every key that upstream's loader reads is there.
    assert list(missing(upstream_facts["accessed_config"], written)) == []
