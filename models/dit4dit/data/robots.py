"""Robot types DiT4DiT knows: which parts of a dataset it uses and how they are normalised."""

from __future__ import annotations

from vla_train.data.config import RobotConfig

NEW_EMBODIMENT = "new_embodiment"
_TASK = "human.action.task_description"
_POSE = ["x", "y", "z", "roll", "pitch", "yaw"]
_TWO_ARMS = ["left_joints", "right_joints", "left_gripper", "right_gripper"]
_TWO_GRIPPERS = {"left_gripper": "binary", "right_gripper": "binary"}
_THREE_CAMERAS = ["cam_high", "cam_left_wrist", "cam_right_wrist"]
_SO101 = [
    f"{joint}.pos" for joint in ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
]
_GR1 = ["left_arm", "right_arm", "left_hand", "right_hand", "waist"]
_G1_ARMS = ["left_arm", "right_arm", "left_gripper", "right_gripper"]


def _two_arms(action_horizon: int) -> RobotConfig:
    return RobotConfig(
        state_keys=_TWO_ARMS,
        action_keys=_TWO_ARMS,
        video_keys=_THREE_CAMERAS,
        language_key=_TASK,
        action_horizon=action_horizon,
        state_modes=_TWO_GRIPPERS,
        action_modes=_TWO_GRIPPERS,
        tag=NEW_EMBODIMENT,
    )


def _oxe(camera: str, state_keys: list[str], tag: str) -> RobotConfig:
    return RobotConfig(
        state_keys=state_keys,
        action_keys=[*_POSE, "gripper"],
        video_keys=[camera],
        language_key=_TASK,
        action_horizon=16,
        state_transform="q99",
        state_modes={"gripper": "binary"},
        action_transform="q99",
        action_modes={"gripper": "binary"},
        tag=tag,
    )


ROBOTS: dict[str, RobotConfig] = {
    "libero_franka": RobotConfig(
        state_keys=[*_POSE, "pad", "gripper"],
        action_keys=[*_POSE, "gripper"],
        video_keys=["primary_image", "wrist_image"],
        language_key=_TASK,
        action_horizon=8,
        state_transform="sincos",
        action_modes={"gripper": "none"},
        tag="franka",
    ),
    "oxe_droid": RobotConfig(
        state_keys=["eef_position", "eef_rotation", "gripper_position"],
        action_keys=["eef_position_delta", "eef_rotation_delta", "gripper_position"],
        video_keys=["exterior_image_1", "exterior_image_2", "wrist_image"],
        language_key="language.language_instruction",
        action_horizon=16,
        state_modes={"eef_rotation": "none"},
        action_transform="none",
        action_modes={"gripper_position": "binary"},
        state_rotations={"eef_rotation": "rotation_6d"},
        action_rotations={"eef_rotation_delta": "axis_angle"},
        tag="oxe_droid",
    ),
    "oxe_bridge": _oxe("image_0", [*_POSE, "pad", "gripper"], "oxe_bridge"),
    "oxe_rt1": _oxe("image", ["x", "y", "z", "rx", "ry", "rz", "rw", "gripper"], "oxe_rt1"),
    "SO101": RobotConfig(
        state_keys=_SO101,
        action_keys=_SO101,
        video_keys=["primary_image", "wrist_image"],
        language_key=_TASK,
        action_horizon=16,
        tag=NEW_EMBODIMENT,
    ),
    "demo_sim_franka_delta_joints": RobotConfig(
        state_keys=["joints"],
        action_keys=["delta_joints", "gripper_close"],
        video_keys=["base_view", "ego_view"],
        language_key=_TASK,
        action_horizon=16,
        action_modes={"gripper_close": "binary"},
        tag="franka",
    ),
    "arx_x5": _two_arms(16),
    "robotwin": _two_arms(16),
    "robotwin50": _two_arms(50),
    "fourier_gr1_arms_waist": RobotConfig(
        state_keys=_GR1,
        action_keys=_GR1,
        video_keys=["ego_view"],
        language_key="human.coarse_action",
        action_horizon=16,
        state_transform="sincos",
        tag="gr1",
    ),
    "custom_robot_config": RobotConfig(
        state_keys=["eef_position", "eef_rotation"],
        action_keys=["delta_eef_position", "delta_eef_rotation", "gripper_close"],
        video_keys=["base_view", "ego_view"],
        language_key=_TASK,
        action_horizon=16,
        action_modes={"gripper_close": "binary"},
        tag=NEW_EMBODIMENT,
    ),
    "g1_body29_aloha_arms_only": RobotConfig(
        state_keys=_G1_ARMS,
        action_keys=_G1_ARMS,
        video_keys=["ego_view"],
        language_key="human.task_description",
        action_horizon=16,
        state_transform="sincos",
        tag=NEW_EMBODIMENT,
    ),
}
