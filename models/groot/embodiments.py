"""Embodiment tags: names, slots of the embodiment-specific layers, built-in and custom modality configs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from vla_groot.errors import EmbodimentError
from vla_groot.modality import ActionConfig, ActionFormat, ActionRepresentation, ActionType, Embodiment, ModalityConfig

SLOTS: dict[str, int] = {
    "simpler_env_google": 0,
    "simpler_env_widowx": 1,
    "libero_sim": 2,
    "new_embodiment": 10,
    "robocasa_panda_omron": 10,
    "robocasa_gr1_tabletop": 10,
    "unitree_g1_sonic": 11,
    "oxe_droid_relative_eef_relative_joint": 24,
    "real_g1_relative_eef_relative_joints": 25,
    "unitree_g1_full_body_with_waist_height_nav_cmd": 25,
    "real_r1_pro_sharpa_relative_eef": 26,
    "real_r1_pro_sharpa_relative_eef_human": 26,
    "real_r1_pro_sharpa_relative_eef_maxinsights": 26,
    "real_r1_pro_sharpa_relative_eef_mecka": 26,
    "xdof_relative_eef_relative_joint": 27,
    "xdof_relative_eef_relative_joint_subtask": 27,
}
# Names by which published commands and files call a tag, where they differ from the tag in capitals.
ALIASES = {
    "libero_panda": "libero_sim",
    "xdof": "xdof_relative_eef_relative_joint",
    "xdof_subtask": "xdof_relative_eef_relative_joint_subtask",
    "real_g1": "real_g1_relative_eef_relative_joints",
    "real_r1_pro_sharpa": "real_r1_pro_sharpa_relative_eef",
    "real_r1_pro_sharpa_human": "real_r1_pro_sharpa_relative_eef_human",
    "real_r1_pro_sharpa_maxinsights": "real_r1_pro_sharpa_relative_eef_maxinsights",
    "real_r1_pro_sharpa_mecka": "real_r1_pro_sharpa_relative_eef_mecka",
    "unitree_g1": "unitree_g1_full_body_with_waist_height_nav_cmd",
}

_TASK = "annotation.human.action.task_description"
_POSE = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
_BODY = ("left_arm", "right_arm", "left_hand", "right_hand", "waist")
_LEGS = ("left_leg", "right_leg")
_ABSOLUTE = ActionConfig()
_JOINTS = ActionConfig(ActionRepresentation.RELATIVE)
_EEF = ActionConfig(ActionRepresentation.RELATIVE, ActionType.EEF, ActionFormat.XYZ_ROT6D)


def _embodiment(
    video: tuple[str, ...],
    state: tuple[str, ...],
    action: tuple[str, ...],
    horizon: int,
    *,
    language: str = _TASK,
    frames: tuple[int, ...] = (0,),
    meaning: tuple[ActionConfig, ...] | None = None,
    angles: tuple[str, ...] | None = None,
) -> Embodiment:
    return {
        "video": ModalityConfig(frames, video),
        "state": ModalityConfig((0,), state, sin_cos_embedding_keys=angles),
        "action": ModalityConfig(tuple(range(horizon)), action, action_configs=meaning),
        "language": ModalityConfig((0,), (language,)),
    }


#: Embodiments whose modality configs a checkpoint need not hold.
BUILT_IN: dict[str, Embodiment] = {
    "libero_sim": _embodiment(("image", "wrist_image"), _POSE, _POSE, 16),
    "simpler_env_widowx": _embodiment(("image_0",), (*_POSE[:6], "pad", "gripper"), _POSE, 8),
    "simpler_env_google": _embodiment(("image",), ("x", "y", "z", "rx", "ry", "rz", "rw", "gripper"), _POSE, 8),
    "oxe_droid_relative_eef_relative_joint": _embodiment(
        ("exterior_image_1_left", "wrist_image_left"),
        ("eef_9d", "gripper_position", "joint_position"),
        ("eef_9d", "gripper_position", "joint_position"),
        40,
        language="annotation.language.language_instruction",
        frames=(-15, 0),
        meaning=(_EEF, _ABSOLUTE, _JOINTS),
    ),
    "unitree_g1_full_body_with_waist_height_nav_cmd": _embodiment(
        ("ego_view",),
        (*_LEGS, "waist", *_BODY[:4]),
        (*_BODY, "base_height_command", "navigate_command"),
        50,
        language="annotation.human.task_description",
        meaning=(_JOINTS, _JOINTS, *[_ABSOLUTE] * 5),
    ),
    "unitree_g1_sonic": _embodiment(
        ("ego_view",),
        (*_LEGS, "waist", *_BODY[:4], "projected_gravity"),
        ("motion_token", "left_hand_joints", "right_hand_joints"),
        40,
        language="annotation.human.task_description",
    ),
    "robocasa_panda_omron": _embodiment(
        ("res256_image_side_0", "res256_image_side_1", "res256_image_wrist_0"),
        (
            "gripper_qpos",
            "base_position",
            "base_rotation",
            "end_effector_position_relative",
            "end_effector_rotation_relative",
            "gripper_qvel",
            "end_effector_position_absolute",
            "end_effector_rotation_absolute",
            "joint_position",
            "joint_position_cos",
            "joint_position_sin",
            "joint_velocity",
        ),
        ("gripper_close", "end_effector_position", "end_effector_rotation", "base_motion", "control_mode"),
        8,
    ),
    # The waist is commanded absolutely, unlike arms and hands.
    "robocasa_gr1_tabletop": _embodiment(
        ("ego_view_bg_crop_pad_res256_freq20",),
        _BODY,
        _BODY,
        8,
        language="task",
        meaning=(*[_JOINTS] * 4, _ABSOLUTE),
        angles=_BODY,
    ),
}


def resolve_tag(name: Any, known: Mapping[str, Any] | None = None) -> str:
    """The tag that `name` means, whatever its case; an enumeration's member is taken by its value.

    Args:
        name: a tag, or a published name of one (`LIBERO_PANDA`).
        known: tags there are; None for all published ones.

    Raises:
        EmbodimentError: there is no such tag; the message lists the nearest.
    """
    tags = SLOTS if known is None else known
    text = str(getattr(name, "value", name)).lower()
    by_case = {tag.lower(): tag for tag in tags}
    # A tag of the caller's own wins over a published name.
    for wanted in (text, ALIASES.get(text, text)):
        if wanted in by_case:
            return by_case[wanted]
    near = [repr(by_case[tag]) for tag in _nearest(text, list(by_case))]
    raise EmbodimentError(
        f"There is no embodiment tag '{name}'.",
        why=f"known: {', '.join(tags)}",
        fix=(f"did you mean {' or '.join(near)}? Otherwise " if near else "") + "use new_embodiment for your own robot",
    )


def _nearest(text: str, tags: list[str]) -> list[str]:
    """At most three tags: those that share a distinctive word (fourier_gr1, robocasa_gr1_tabletop), then the alike."""
    words = {word: [tag for tag in tags if word in tag.split("_")] for word in text.split("_")}
    shared = [tag for found in words.values() if len(found) <= 2 for tag in found]
    return list(dict.fromkeys([*shared, *difflib.get_close_matches(text, tags, n=3, cutoff=0.4)]))[:3]


def complete_slots(given: Mapping[str, int] | None) -> dict[str, int]:
    """`given` slots by tag, completed with the published ones."""
    return {**SLOTS, **(given or {})}
