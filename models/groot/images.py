"""The image pipeline before the backbone's own: pad, resize, crop, resize, and in training the augmentations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla_groot.augment import jitter, rotate
from vla_groot.errors import ConfigError, ProcessorError
from vla_groot.resize import area_resize, interpolate


@dataclass(frozen=True)
class Augmentation:
    """The random choices of one sample, the same for all its views and frames.

    Attributes:
        top, left: crop position as a share of the free space, in [0, 1).
        angle: rotation in degrees.
        jitter: factors of brightness, contrast and saturation, and the shift of the hue.
        order: order in which they are applied.
    """

    top: float
    left: float
    angle: float = 0.0
    jitter: Mapping[str, float] = field(default_factory=dict)
    order: Sequence[str] = ()


@dataclass(frozen=True)
class ImagePipeline:
    """Settings of the pipeline; the names are those of `processor_config.json`.

    Attributes:
        shortest_image_edge, crop_fraction: pixels of the shorter side, and the share that is cropped.
        image_target_size, image_crop_size: the older way to say the same; used where the newer is missing.
        keep_aspect: keep the aspect ratio (`use_albumentations`); false squashes to `image_target_size`.
        letter_box: pad to a square with black first.
        random_rotation_angle, color_jitter_params: augmentations of training.
    """

    shortest_image_edge: int | None = None
    crop_fraction: float | None = None
    image_target_size: Sequence[int] | None = None
    image_crop_size: Sequence[int] | None = None
    keep_aspect: bool = True
    letter_box: bool = False
    random_rotation_angle: float | None = None
    color_jitter_params: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        complete = self.image_target_size is not None and self.image_crop_size is not None
        if not self.keep_aspect and not complete:
            raise ConfigError(
                "use_albumentations=false needs image_target_size and image_crop_size.",
                why="views are squashed to the first and cropped to the second",
                fix="set both, [height, width] in pixels, or use_albumentations=true",
            )
        if self.shortest_image_edge is None and self.image_target_size is None:
            raise ConfigError(
                "The size of the images is not set.", fix="set shortest_image_edge, e.g. 256, or image_target_size"
            )
        if self.crop_fraction is None and not complete:
            raise ConfigError(
                "The crop of the images is not set.", fix="set crop_fraction, e.g. 0.95; 1 keeps the whole view"
            )
        if not 0 < self._fraction <= 1:
            raise ConfigError(f"crop_fraction is {self._fraction}.", fix="use a number above 0, at most 1")

    @property
    def edge(self) -> int:
        """Pixels of the shorter side of a view."""
        if self.shortest_image_edge is not None:
            return int(self.shortest_image_edge)
        return int((self.image_target_size or [0])[0])

    @property
    def _fraction(self) -> float:
        if self.crop_fraction is not None:
            return float(self.crop_fraction)
        return float((self.image_crop_size or [0])[0]) / float((self.image_target_size or [1])[0])

    def draw(self, rng: np.random.Generator) -> Augmentation:
        """Random choices for one training sample."""
        limit, wanted = self.random_rotation_angle or 0.0, self.color_jitter_params or {}
        top, left = rng.random(2)
        factors = {}
        for name, strength in wanted.items():
            if name not in ("brightness", "contrast", "saturation", "hue"):
                raise ConfigError(
                    f"color_jitter_params has '{name}'.", fix="use brightness, contrast, saturation and hue"
                )
            low = -strength if name == "hue" else max(0.0, 1 - strength)
            factors[name] = float(rng.uniform(low, strength if name == "hue" else 1 + strength))
        order = [str(name) for name in rng.permutation(list(factors))]
        return Augmentation(
            float(top), float(left), float(rng.uniform(-limit, limit)) if limit else 0.0, factors, order
        )

    def __call__(self, frames: np.ndarray, augmentation: Augmentation | None = None) -> np.ndarray:
        """frames (..., H, W, 3) uint8 -> (..., 3, h, w) uint8; without `augmentation` as in evaluation.

        Raises:
            ProcessorError: the frames are no uint8 images.
        """
        if frames.dtype != np.uint8 or frames.ndim < 3 or frames.shape[-1] != 3:
            raise ProcessorError(
                f"Frames are {frames.shape} {frames.dtype}.",
                why="(..., height, width, 3) uint8 RGB is needed",
                fix="convert them, e.g. (frame * 255).astype(numpy.uint8)",
            )
        if self.letter_box:
            frames = _square(frames)
        frames = self._cropped(self._sized(frames), augmentation)
        frames = self._sized(frames)
        if augmentation is not None:
            frames = rotate(frames, augmentation.angle)
            frames = jitter(frames, augmentation.jitter, augmentation.order)
        return np.moveaxis(frames, -1, -3)

    def _sized(self, frames: np.ndarray) -> np.ndarray:
        if not self.keep_aspect:
            height, width = (int(value) for value in self.image_target_size or ())
            return interpolate(frames, height, width, "bilinear")
        height, width = frames.shape[-3:-1]
        scale = self.edge / min(height, width)
        return area_resize(frames, round(height * scale), round(width * scale))

    def _cropped(self, frames: np.ndarray, augmentation: Augmentation | None) -> np.ndarray:
        height, width = frames.shape[-3:-1]
        if self.keep_aspect:
            tall, wide = max(1, int(height * self._fraction)), max(1, int(width * self._fraction))
        else:
            tall, wide = (int(value) for value in self.image_crop_size or ())
        if augmentation is None and self.keep_aspect:
            top, left = (height - tall) // 2, (width - wide) // 2
        elif augmentation is None:
            top, left = round((height - tall) / 2.0), round((width - wide) / 2.0)
        else:
            top, left = (
                int((height - tall + 1) * augmentation.top),
                int((width - wide + 1) * augmentation.left),
            )
        return frames[..., top : top + tall, left : left + wide, :]


def _square(frames: np.ndarray) -> np.ndarray:
    height, width = frames.shape[-3:-1]
    side = max(height, width)
    above, before = (side - height) // 2, (side - width) // 2
    padding: list[tuple[int, int]] = [(0, 0)] * (frames.ndim - 3)
    padding += [(above, side - height - above), (before, side - width - before), (0, 0)]
    return np.pad(frames, padding)


def stack_views(views: Sequence[np.ndarray], names: Sequence[str]) -> np.ndarray:
    """Views (T, 3, h, w) of one sample -> (T, views, 3, h, w).

    Raises:
        ProcessorError: they come out in different sizes.
    """
    sizes = {view.shape[-2:] for view in views}
    if len(sizes) > 1:
        listed = ", ".join(f"{name} {view.shape[-2]}x{view.shape[-1]}" for name, view in zip(names, views, strict=True))
        raise ProcessorError(
            "The views of a sample have different sizes.",
            why=listed,
            fix="set letter_box_transform=true, so that all become square",
        )
    return np.stack(list(views), axis=1)


def settings_from(kwargs: Mapping[str, Any]) -> ImagePipeline:
    """The pipeline of a `processor_config.json`."""
    return ImagePipeline(
        shortest_image_edge=kwargs.get("shortest_image_edge"),
        crop_fraction=kwargs.get("crop_fraction"),
        image_target_size=kwargs.get("image_target_size"),
        image_crop_size=kwargs.get("image_crop_size"),
        keep_aspect=bool(kwargs.get("use_albumentations", True)),
        letter_box=bool(kwargs.get("letter_box_transform", False)),
        random_rotation_angle=kwargs.get("random_rotation_angle"),
        color_jitter_params=kwargs.get("color_jitter_params"),
    )
