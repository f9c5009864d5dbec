"""Text and images as the backbone's inputs: chat template, tokens, pixel patches."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla_groot.backbone_files import BackboneFiles
from vla_groot.errors import BackboneError, ProcessorError
from vla_groot.resize import interpolate

IMAGE_TOKEN = "<|image_pad|>"
# One user message without a system message, as Qwen3-VL's own template writes it.
_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}{%- for content in message.content %}"
    "{%- if content.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- else %}{{- content.text }}{%- endif %}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}"
)


def formalize(text: str) -> str:
    """Lower case without punctuation: everything but letters, digits, underscores and white space is dropped."""
    return re.sub(r"[^\w\s]", "", text.lower())


@dataclass(frozen=True)
class PatchSettings:
    """How Qwen3-VL cuts images into patches; the names are those of `preprocessor_config.json`.

    Attributes:
        patch_size, temporal_patch_size, merge_size: pixels per side, frames, and patches per token and side.
        min_pixels, max_pixels: bounds of the image area.
        mean, std: per channel, of values in [0, 1].
    """

    patch_size: int = 16
    temporal_patch_size: int = 2
    merge_size: int = 2
    min_pixels: int = 65536
    max_pixels: int = 16777216
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    @classmethod
    def read(cls, folder: Path) -> PatchSettings:
        """From the folder's `preprocessor_config.json`; without the file Qwen3-VL's defaults."""
        path = folder / "preprocessor_config.json"
        if not path.is_file():
            return cls()
        raw = json.loads(path.read_text(encoding="utf-8"))
        size = raw.get("size") or {}
        default = cls()
        return cls(
            patch_size=raw.get("patch_size") or default.patch_size,
            temporal_patch_size=raw.get("temporal_patch_size") or default.temporal_patch_size,
            merge_size=raw.get("merge_size") or default.merge_size,
            min_pixels=size.get("shortest_edge") or raw.get("min_pixels") or default.min_pixels,
            max_pixels=size.get("longest_edge") or raw.get("max_pixels") or default.max_pixels,
            mean=tuple(raw.get("image_mean") or default.mean),
            std=tuple(raw.get("image_std") or default.std),
        )

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The nearest size whose sides are multiples of a token's pixels and whose area is within the bounds."""
        unit = self.patch_size * self.merge_size
        if max(height, width) / min(height, width) > 200:
            raise ProcessorError(
                f"An image is {height}x{width} pixels.",
                why="the longer side may be at most 200 times the shorter one",
                fix="crop or pad it",
            )
        tall, wide = round(height / unit) * unit, round(width / unit) * unit
        if tall * wide > self.max_pixels:
            factor = math.sqrt(height * width / self.max_pixels)
            tall = max(unit, math.floor(height / factor / unit) * unit)
            wide = max(unit, math.floor(width / factor / unit) * unit)
        elif tall * wide < self.min_pixels:
            factor = math.sqrt(self.min_pixels / (height * width))
            tall, wide = math.ceil(height * factor / unit) * unit, math.ceil(width * factor / unit) * unit
        return tall, wide

    def patches(self, images: np.ndarray) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Patches of images of one size.

        Args:
            images: (N, 3, H, W) uint8.

        Returns:
            (N, patches, 3 * temporal_patch_size * patch_size^2) float32, tokens being blocks of merge_size^2 patches,
            and the grid (1, rows, columns) of every image.
        """
        height, width = self.fitted(*images.shape[-2:])
        resized = np.moveaxis(interpolate(np.moveaxis(images, 1, -1), height, width, "bicubic"), -1, 1)
        pixels = torch.from_numpy(np.ascontiguousarray(resized)).float()
        # Scaling by 1/255 and normalising in one step.
        mean = torch.tensor(self.mean)[:, None, None] * 255
        std = torch.tensor(self.std)[:, None, None] * 255
        pixels = (pixels - mean) / std
        size, merge = self.patch_size, self.merge_size
        rows, columns = height // size, width // size
        blocks = pixels.view(len(images), 3, rows // merge, merge, size, columns // merge, merge, size)
        blocks = blocks.permute(0, 2, 5, 3, 6, 1, 4, 7)[:, :, :, :, :, :, None]
        blocks = blocks.expand(-1, -1, -1, -1, -1, -1, self.temporal_patch_size, -1, -1)
        return blocks.reshape(len(images), rows * columns, -1), (1, rows, columns)


class VisionLanguageProcessor:
    """Turns instructions and images into `input_ids`, `attention_mask`, `pixel_values` and `image_grid_thw`.

    Args:
        files: the backbone's files; read at first use, so that a copy travels to data workers cheaply.
    """

    def __init__(self, files: BackboneFiles) -> None:
        self.files = files
        self._tokenizer: Any = None
        self._template = ""
        self._patches = PatchSettings()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokenizer": None}

    @property
    def tokenizer(self) -> Any:
        """The backbone's tokenizer.

        Raises:
            BackboneError: it cannot be had.
        """
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            folder = self.files.folder()
            try:
                self._tokenizer = AutoTokenizer.from_pretrained(folder)
            except (OSError, ValueError) as error:
                raise BackboneError(
                    f"{folder} holds no tokenizer.",
                    why=str(error).splitlines()[0],
                    fix="give the folder of a complete Qwen3-VL model, or its hub id",
                ) from error
            self._template = _template(folder, self._tokenizer)
            self._patches = PatchSettings.read(folder)
        return self._tokenizer

    @property
    def patch_settings(self) -> PatchSettings:
        """How images are cut into patches."""
        return self._patches if self.tokenizer is not None else PatchSettings()

    def prompt(self, text: str, images: int) -> str:
        """One user message: all images, then the text; no generation prompt."""
        tokenizer = self.tokenizer
        content = [*[{"type": "image"}] * images, {"type": "text", "text": text}]
        return str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": content}], chat_template=self._template, tokenize=False
            )
        )

    def __call__(self, prompts: Sequence[str], images: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
        """A batch, padded on the left.

        Args:
            prompts: from `prompt`, one per sample.
            images: (3, H, W) uint8 each, those of all samples one after the other.

        Raises:
            ProcessorError: prompts and images do not match.
        """
        tokenizer, settings = self.tokenizer, self.patch_settings
        patches: list[torch.Tensor] = [torch.empty(0)] * len(images)
        grids: list[tuple[int, int, int]] = [(0, 0, 0)] * len(images)
        for size in {image.shape for image in images}:
            at = [index for index, image in enumerate(images) if image.shape == size]
            made, grid = settings.patches(np.stack([images[index] for index in at]))
            for index, pixels in zip(at, made, strict=True):
                patches[index], grids[index] = pixels, grid
        tokens = iter(math.prod(grid) // settings.merge_size**2 for grid in grids)
        wanted = sum(prompt.count(IMAGE_TOKEN) for prompt in prompts)
        if wanted != len(images):
            raise ProcessorError(
                f"The prompts name {wanted} images, there are {len(images)}.",
                why="every image has one placeholder",
                fix="give the images of all prompts, in order",
            )
        texts = [re.sub(re.escape(IMAGE_TOKEN), lambda _: IMAGE_TOKEN * next(tokens), prompt) for prompt in prompts]
        encoded: Mapping[str, torch.Tensor] = tokenizer(
            texts, padding=True, padding_side="left", return_tensors="pt", return_token_type_ids=False
        )
        batch = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}
        if images:
            batch["pixel_values"] = torch.cat(patches)
            batch["image_grid_thw"] = torch.tensor(grids, dtype=torch.int64)
        return batch


def _template(folder: Path, tokenizer: Any) -> str:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if (folder / "chat_template.json").is_file():
        return str(json.loads((folder / "chat_template.json").read_text(encoding="utf-8"))["chat_template"])
    return str(tokenizer.chat_template or _TEMPLATE)
