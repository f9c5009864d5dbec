"""Named mixtures of DiT4DiT: (dataset folder, sampling weight, robot type)."""

from __future__ import annotations

Mixture = tuple[tuple[str, float, str], ...]

_ROBOTWIN_TASKS = [
    "adjust_bottle",
    "beat_block_hammer",
    "blocks_ranking_rgb",
    "blocks_ranking_size",
    "click_alarmclock",
    "click_bell",
    "dump_bin_bigbin",
    "grab_roller",
    "handover_block",
    "handover_mic",
    "hanging_mug",
    "lift_pot",
    "move_can_pot",
    "move_pillbottle_pad",
    "move_playingcard_away",
    "move_stapler_pad",
    "open_laptop",
    "open_microwave",
    "pick_diverse_bottles",
    "pick_dual_bottles",
    "place_a2b_left",
    "place_a2b_right",
    "place_bread_basket",
    "place_bread_skillet",
    "place_burger_fries",
    "place_can_basket",
    "place_cans_plasticbox",
    "place_container_plate",
    "place_dual_shoes",
    "place_empty_cup",
    "place_fan",
    "place_mouse_pad",
    "place_object_basket",
    "place_object_scale",
    "place_object_stand",
    "place_phone_stand",
    "place_shoe",
    "press_stapler",
    "put_bottles_dustbin",
    "put_object_cabinet",
    "rotate_qrcode",
    "scan_object",
    "shake_bottle",
    "shake_bottle_horizontally",
    "stack_blocks_three",
    "stack_blocks_two",
    "stack_bowls_three",
    "stack_bowls_two",
    "stamp_seal",
    "turn_switch",
]

_GR1_CLOSE = ["BottleToCabinet", "CanToDrawer", "CupToDrawer", "MilkToMicrowave", "PotatoToMicrowave", "WineToCabinet"]
_GR1_NOVEL = [
    "CuttingboardToBasket",
    "CuttingboardToCardboardbox",
    "CuttingboardToPan",
    "CuttingboardToPot",
    "CuttingboardToTieredbasket",
    "PlacematToBasket",
    "PlacematToBowl",
    "PlacematToPlate",
    "PlacematToTieredshelf",
    "PlateToBowl",
    "PlateToCardboardbox",
    "PlateToPan",
    "PlateToPlate",
    "TrayToCardboardbox",
    "TrayToPlate",
    "TrayToPot",
    "TrayToTieredbasket",
    "TrayToTieredshelf",
]
_GR1_PRETRAIN = [
    "CanToDrawer",
    "CupToDrawer",
    "CuttingboardToBasket",
    "CuttingboardToCardboardBox",
    "CuttingboardToPan",
    "CuttingboardToPot",
    "CuttingboardToTieredBasket",
    "PlaceBottleToCabinet",
    "PlaceMilkToMicrowave",
    "PlacematToBasket",
    "PlacematToBowl",
    "PlacematToPlate",
    "PlacematToTieredShelf",
    "PlateToBowl",
    "PlateToCardboardBox",
    "PlateToPan",
    "PlateToPlate",
    "PotatoToMicrowave",
    "TrayToCardboardBox",
    "TrayToPlate",
    "TrayToPot",
    "TrayToTieredBasket",
    "TrayToTieredShelf",
    "WineToCabinet",
]
_REAL_G1 = [
    "pnp_eggplant_lh_200ep_26_1_28",
    "pnp_corn_middle_drawer",
    "pnp_plate",
    "arrange_flower",
    "move_spoon",
    "stack_cups",
    "packaging",
]


def _equal(robot: str, *folders: str) -> Mixture:
    return tuple((folder, 1.0, robot) for folder in folders)


def _robotwin(robot: str) -> Mixture:
    return _equal(robot, *(f"{part}/{task}" for part in ("Clean", "Randomized") for task in _ROBOTWIN_TASKS))


def _gr1_unified(count: int) -> list[str]:
    tail = f"GR1ArmsAndWaistFourierHands_{count}"
    close = [f"gr1_unified.PnP{name}Close_{tail}" for name in _GR1_CLOSE]
    return close + [f"gr1_unified.PosttrainPnPNovelFrom{name}SplitA_{tail}" for name in _GR1_NOVEL]


_LIBERO = [f"libero_{suite}_no_noops_1.0.0_lerobot" for suite in ("object", "goal", "spatial", "10")]
_BRIDGE = "bridge_orig_1.0.0_lerobot"

MIXTURES: dict[str, Mixture] = {
    "custom_dataset": _equal("custom_robot_config", "custom_dataset_name"),
    "custom_dataset_2": _equal("custom_robot_config", "custom_dataset_name_1", "custom_dataset_name_2"),
    "libero_all": _equal("libero_franka", *_LIBERO),
    "bridge": _equal("oxe_bridge", _BRIDGE),
    "bridge_rt_1": _equal("oxe_bridge", _BRIDGE) + _equal("oxe_rt1", "fractal20220817_data_0.1.0_lerobot"),
    "demo_sim_pick_place": _equal("demo_sim_franka_delta_joints", "sim_pick_place"),
    "fourier_gr1_unified_1000": _equal("fourier_gr1_arms_waist", *_gr1_unified(1000)),
    "fourier_gr1_pretrain_10K": _equal("fourier_gr1_arms_waist", *(f"gr1_arms_waist.{n}" for n in _GR1_PRETRAIN)),
    "BEHAVIOR_challenge": _equal("R1Pro", "BEHAVIOR_challenge"),
    "SO101_pick": _equal("SO101", "pick_dataset_name"),
    "arx_x5": _equal("arx_x5", "arx_x5"),
    "robotwin_all": _robotwin("robotwin"),
    "robotwin_all_50": _robotwin("robotwin50"),
    "robotwin": _equal("robotwin", *_ROBOTWIN_TASKS),
    "robotwin_task1": _equal("robotwin", "adjust_bottle"),
    "robotwin_task2": _equal("robotwin", "place_a2b_left", "place_a2b_right"),
    "multi_robot": _equal("libero_franka", "LEROBOT_LIBERO_DATA/libero_10_no_noops_1.0.0_lerobot"),
    "real_robot_all": _equal("g1_body29_aloha_arms_only", *_REAL_G1),
}
