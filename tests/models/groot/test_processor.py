"""The processor against recordings of the published implementation."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
import torch

from vla_groot.embodiments import BUILT_IN, SLOTS, resolve_tag
from vla_groot.errors import BackboneError, CheckpointError, ConfigError, EmbodimentError, ProcessorError
from vla_groot.modality import ActionRepresentation
from vla_groot.processor import GrootProcessor, Sample
from vla_groot.vision_language import PatchSettings, formalize

from .conftest import DATA, near, part

CHECKPOINT = DATA / "checkpoint"
TAGS = ("libero_sim", "simpler_env_widowx")
BACKBONE = "tiny_backbone/Qwen/Qwen3-VL-tiny"


@pytest.fixture(scope="module")
def processor():
    return GrootProcessor.load(CHECKPOINT)


def raw(recorded, facts, number: int) -> Sample:
    values = {key: value.numpy() for key, value in part(recorded, f"s{number}.").items()}
    images = {key: value[None] for key, value in part(values, "image.").items()}
    text = facts["raw_texts"][number]
    return Sample(images, part(values, "state."), part(values, "action."), text, TAGS[number])


def test_samples_and_batch(processor, tensors, facts):
    recorded, facts = tensors("processor_batch"), facts("processor_batch")
    samples = [processor.prepare(raw(recorded, facts, number)) for number in range(2)]
    for number, sample in enumerate(samples):
        for key in ("state", "action", "action_mask"):
            near(torch.from_numpy(sample[key]), recorded[f"s{number}.out.{key}"], 1e-6)
        for index, image in enumerate(sample["vlm_content"]["images"]):
            wanted = recorded[f"s{number}.transformed_image.{index}"].int()
            assert (torch.from_numpy(image.astype(np.int32)) - wanted).abs().max() <= 1
        assert sample["vlm_content"]["text"] == facts["texts"][number]
        assert sample["embodiment_id"] == facts["embodiment_id"][number]
        # From here on with the recorded pixels, so that patches can be compared exactly.
        names = sorted(key for key in recorded if key.startswith(f"s{number}.transformed_image."))
        sample["vlm_content"]["images"] = [recorded[name].numpy() for name in names]
    batch = processor.collate(samples)
    assert set(batch) == set(facts["batch_keys"])
    for key, value in batch.items():
        wanted = recorded[f"batch.{key}"]
        assert value.dtype == wanted.dtype
        if key == "pixel_values":
            assert (value - wanted).abs().max() <= 1.01 * 2 / 255  # bicubic resizing of one image, one level
            assert ((value - wanted).abs() > 1e-6).float().mean() < 0.01
        else:
            near(value, wanted, 1e-6)


def test_decoded_actions(processor, tensors):
    recorded = tensors("full_action")
    for number, tag in enumerate(TAGS):
        found = processor.decode_action(recorded["out.action_pred"][number : number + 1].numpy(), tag)
        wanted = part(recorded, f"decoded.{tag}.")
        assert set(found) == set(wanted)
        for key, value in wanted.items():
            near(torch.from_numpy(found[key]), value, 1e-5)


def test_round_trip(processor, tmp_path):
    assert processor.save(tmp_path) == ["processor_config.json", "statistics.json", "embodiment_id.json"]
    for name in ("processor_config.json", "statistics.json", "embodiment_id.json"):
        assert json.loads((tmp_path / name).read_text()) == json.loads((CHECKPOINT / name).read_text()), name
    again = GrootProcessor.load(tmp_path, backbone=BACKBONE)
    assert again.embodiments == processor.embodiments
    assert again.settings == processor.settings


def test_files_in_the_sub_folder(tmp_path):
    shutil.copytree(CHECKPOINT, tmp_path / "processor")
    assert GrootProcessor.load(tmp_path, backbone=BACKBONE).slots == SLOTS


def test_every_change_takes_effect(tensors, facts):
    recorded, facts = tensors("processor_batch"), facts("processor_batch")
    sample = raw(recorded, facts, 0)
    changed = GrootProcessor.load(
        CHECKPOINT,
        changes={
            "use_percentiles": False,
            "crop_fraction": 0.5,
            "shortest_image_edge": 32,
            "formalize_language": False,
            "exclude_state": True,
            "letter_box_transform": True,
        },
    ).prepare(sample)
    usual = GrootProcessor.load(CHECKPOINT).prepare(sample)
    assert changed["vlm_content"]["images"][0].shape == (3, 32, 32)
    assert facts["raw_texts"][0] in changed["vlm_content"]["text"]
    assert not changed["state"].any()
    assert usual["state"].any()
    assert not np.array_equal(changed["action"], usual["action"])
    with pytest.raises(ConfigError, match="crop_fractions"):
        GrootProcessor.load(CHECKPOINT, changes={"crop_fractions": 0.5})


def test_training_draws_come_from_the_generator(tensors, facts):
    recorded, facts = tensors("processor_batch"), facts("processor_batch")
    made = GrootProcessor.load(CHECKPOINT, changes={"state_dropout_prob": 0.5})
    sample = raw(recorded, facts, 0)
    first, second = (made.prepare(sample, np.random.default_rng(1)) for _ in range(2))
    assert all(
        np.array_equal(a, b) for a, b in zip(*(s["vlm_content"]["images"] for s in (first, second)), strict=True)
    )
    dropped = [not made.prepare(sample, np.random.default_rng(seed))["state"].any() for seed in range(40)]
    assert 8 < sum(dropped) < 32
    assert made.prepare(sample)["state"].any()  # evaluation drops nothing


def test_travels_to_a_worker(processor):
    copy = pickle.loads(pickle.dumps(processor))
    assert copy.vlm.prompt("x", 1) == processor.vlm.prompt("x", 1)


def test_template_of_a_folder_without_one(tmp_path, processor):
    folder = shutil.copytree(DATA / BACKBONE, tmp_path / "vlm")
    (folder / "chat_template.jinja").unlink()
    made = GrootProcessor.load(CHECKPOINT, backbone=str(folder))
    assert made.vlm.prompt("go on", 2) == processor.vlm.prompt("go on", 2)


@pytest.mark.parametrize(
    ("text", "wanted"), [("Open-the Drawer.", "openthe drawer"), ("Größe_1 \t(äh)!", "größe_1 \täh"), ("", "")]
)
def test_formalized_text(text, wanted):
    assert formalize(text) == wanted


def test_sizes_of_patches():
    settings = PatchSettings()
    assert settings.fitted(256, 256) == (256, 256)
    assert settings.fitted(270, 341) == (256, 352)
    assert settings.fitted(10, 10) == (256, 256)
    assert PatchSettings(max_pixels=65536).fitted(512, 1024) == (160, 352)
    with pytest.raises(ProcessorError, match="200 times"):
        settings.fitted(1, 201)


@pytest.mark.parametrize(
    ("tag", "states", "actions", "horizon", "relative"),
    [
        ("libero_sim", 7, 7, 16, ()),
        ("simpler_env_widowx", 8, 7, 8, ()),
        ("simpler_env_google", 8, 7, 8, ()),
        ("oxe_droid_relative_eef_relative_joint", 3, 3, 40, ("eef_9d", "joint_position")),
        ("unitree_g1_sonic", 8, 3, 40, ()),
        ("unitree_g1_full_body_with_waist_height_nav_cmd", 7, 7, 50, ("left_arm", "right_arm")),
        ("robocasa_panda_omron", 12, 5, 8, ()),
        ("robocasa_gr1_tabletop", 5, 5, 8, ("left_arm", "right_arm", "left_hand", "right_hand")),
    ],
)
def test_published_embodiments(tag, states, actions, horizon, relative):
    embodiment = BUILT_IN[tag]
    action = embodiment["action"]
    assert (len(embodiment["state"].modality_keys), len(action.modality_keys)) == (states, actions)
    assert action.delta_indices == tuple(range(horizon))
    found = [key for key in action.modality_keys if action.action(key).rep is ActionRepresentation.RELATIVE]
    assert tuple(found) == relative


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("REAL_G1", "real_g1_relative_eef_relative_joints"),
        ("UNITREE_G1", "unitree_g1_full_body_with_waist_height_nav_cmd"),
        ("UNITREE_G1_SONIC", "unitree_g1_sonic"),
        ("XDOF_SUBTASK", "xdof_relative_eef_relative_joint_subtask"),
        ("real_r1_pro_sharpa_mecka", "real_r1_pro_sharpa_relative_eef_mecka"),
        ("OXE_DROID_RELATIVE_EEF_RELATIVE_JOINT", "oxe_droid_relative_eef_relative_joint"),
    ],
)
def test_published_names_of_tags(name, tag):
    assert resolve_tag(name) == tag


def test_a_tag_of_ones_own_comes_before_a_published_name():
    assert resolve_tag("REAL_G1", {"real_g1": 0, "real_g1_relative_eef_relative_joints": 1}) == "real_g1"


class TestErrors:
    def test_unknown_tag_names_the_nearest(self, processor):
        with pytest.raises(EmbodimentError, match="did you mean 'libero_sim'"):
            processor.embodiment("libero_simm")
        assert processor.embodiment("LIBERO_PANDA") is processor.embodiment("Libero_Sim")

    def test_described_tag_without_a_slot(self):
        """Modality configs alone do not give an embodiment weights of its own."""
        processor = GrootProcessor.load(CHECKPOINT)
        processor.embodiments["my_robot"] = processor.embodiment("libero_sim")
        with pytest.raises(EmbodimentError, match=r"no embodiment tag 'my_robot'(?s:.*)new_embodiment"):
            processor.prepare(Sample({}, {}, embodiment="my_robot"))
        with pytest.raises(EmbodimentError, match="did you mean 'libero_sim'"):
            processor.decode_action(np.zeros((1, 16, 18)), "libero_robot")

    def test_modality_configs_with_a_gap(self):
        processor = GrootProcessor.load(CHECKPOINT)
        whole = processor.embodiment("libero_sim")
        processor.embodiments["new_embodiment"] = {group: whole[group] for group in ("state", "action")}
        with pytest.raises(EmbodimentError, match="'new_embodiment' lack video, language"):
            processor.embodiment("new_embodiment")

    def test_statistics_with_a_gap(self, tensors, facts):
        processor = GrootProcessor.load(CHECKPOINT)
        del processor.statistics["libero_sim"]["state"]["x"]["q01"]
        with pytest.raises(EmbodimentError, match="state 'x' of 'libero_sim' lack 'q01'"):
            processor.prepare(raw(tensors("processor_batch"), facts("processor_batch"), 0))

    def test_tag_without_configs_or_statistics(self, processor, tensors):
        with pytest.raises(EmbodimentError, match="no modality configs of 'new_embodiment'"):
            processor.embodiment("new_embodiment")
        with pytest.raises(EmbodimentError, match="fine-tune"):
            processor.decode_action(np.zeros((1, 16, 18)), "robocasa_gr1_tabletop")

    def test_missing_view_and_too_long_chunk(self, processor, tensors, facts):
        sample = raw(tensors("processor_batch"), facts("processor_batch"), 0)
        sample.images = {"image": sample.images["image"]}
        with pytest.raises(ProcessorError, match="View 'wrist_image' is missing"):
            processor.prepare(sample)
        sample.actions = {key: np.zeros((17, value.shape[1]), np.float32) for key, value in sample.actions.items()}
        with pytest.raises(ProcessorError, match="17 action steps, the model 16"):
            processor.prepare(sample)

    def test_prompt_without_its_image(self, processor):
        with pytest.raises(ProcessorError, match="name 1 images, there are 0"):
            processor.vlm([processor.vlm.prompt("x", 1)], [])

    def test_no_files(self, tmp_path):
        with pytest.raises(CheckpointError, match="processor"):
            GrootProcessor.load(tmp_path)
        made = GrootProcessor.load(CHECKPOINT, backbone=str(tmp_path))
        with pytest.raises(BackboneError, match="no tokenizer"):
            made.vlm.prompt("x", 1)
