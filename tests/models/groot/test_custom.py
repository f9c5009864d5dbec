"""Modality configs of own embodiments, in Python and YAML files."""

from __future__ import annotations

import sys

import pytest
import yaml

from vla_groot.custom import load_modality_configs
from vla_groot.errors import ConfigError

POSE = ["x", "y", "z"]
MODALITY = {
    "new_embodiment": {
        "video": {"delta_indices": [-2, 0], "modality_keys": ["primary_image", "wrist_image"]},
        "state": {"delta_indices": [0], "modality_keys": [*POSE, "gripper"]},
        "action": {
            "delta_indices": list(range(8)),
            "modality_keys": [*POSE, "gripper"],
            "action_configs": [{"rep": "RELATIVE"}] * 3 + [{"rep": "absolute"}],
        },
        "language": {"delta_indices": [0], "modality_keys": ["annotation.human.action.task_description"]},
    }
}


PYTHON = """
from gr00t.configs.data.embodiment_configs import register_modality_config
from gr00t.data.embodiment_tags import EmbodimentTag
from gr00t.data.types import ActionConfig, ActionFormat, ActionRepresentation, ActionType, ModalityConfig

config = {
    "video": ModalityConfig(delta_indices=[0], modality_keys=["front"]),
    "state": ModalityConfig(delta_indices=[0], modality_keys=["arm"]),
    "action": ModalityConfig(
        delta_indices=list(range(16)),
        modality_keys=["arm"],
        action_configs=[
            ActionConfig(rep=ActionRepresentation.RELATIVE, type=ActionType.EEF, format=ActionFormat.XYZ_ROT6D)
        ],
    ),
    "language": ModalityConfig(delta_indices=[0], modality_keys=["annotation.human.task_description"]),
}
register_modality_config(config, embodiment_tag=EmbodimentTag.NEW_EMBODIMENT)
"""


def test_python_file_for_the_published_package(tmp_path):
    (tmp_path / "config.py").write_text(PYTHON)
    found = load_modality_configs(tmp_path / "config.py")
    assert found["new_embodiment"]["action"].action("arm").format.name == "XYZ_ROT6D"
    assert "gr00t" not in sys.modules


def test_yaml_takes_names_and_values(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(MODALITY))
    found = load_modality_configs(tmp_path / "config.yaml")["new_embodiment"]
    assert [found["action"].action(key).rep.name for key in found["action"].modality_keys] == [
        "RELATIVE",
        "RELATIVE",
        "RELATIVE",
        "ABSOLUTE",
    ]
    again = {group: part.to_dict() for group, part in found.items()}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump({"new_embodiment": again}))
    assert load_modality_configs(tmp_path / "again.yaml")["new_embodiment"] == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "describes no embodiment"),
        ("a: {action: {delta_indices: [0]}}", "incomplete"),
        ("a: {video: {delta_indices: [0], modality_keys: [x]}}", "there is no action"),
        ("a: [", "cannot be read"),
        (
            "a: {action: {delta_indices: [0], modality_keys: [x], action_configs: [{rep: sideways}]}}",
            "'sideways' is no ActionRepresentation",
        ),
    ],
)
def test_broken_files(tmp_path, content, message):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        load_modality_configs(tmp_path / "config.yaml")
