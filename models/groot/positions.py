"""Token positions of Qwen3-VL's multi-axis rotary embedding (interleaved M-RoPE)."""

from __future__ import annotations

import torch

from vla_groot.errors import BatchError


def mrope_positions(
    attention_mask: torch.Tensor, image_mask: torch.Tensor, grids: torch.Tensor | None, merge: int
) -> torch.Tensor:
    """Positions on the axes (time, height, width).

    Text tokens count up on all axes alike. The tokens of an image share their time and run over rows and columns from
    there; counting goes on after the longer side. Padding has position 1.

    Args:
        attention_mask: (B, S), zero at padding.
        image_mask: (B, S) bool.
        grids: (images, 3) patches of every image in time, height, width; None without images.
        merge: patches per token and side.

    Returns:
        (3, B, S) int64 on the device of `attention_mask`.

    Raises:
        BatchError: the image tokens do not match `grids`.
    """
    shapes = [] if grids is None else [(h // merge, w // merge) for _, h, w in grids.tolist()]
    mask, images = attention_mask.bool().cpu(), image_mask.cpu()
    positions = torch.ones(3, *mask.shape, dtype=torch.int64)
    number = 0
    for row in range(mask.shape[0]):
        at = torch.nonzero(mask[row])[:, 0]
        is_image = images[row, at].tolist()
        pieces, start, index = [], 0, 0
        while index < len(is_image):
            if is_image[index]:
                if number >= len(shapes):
                    raise _mismatch(int(images.sum()), shapes)
                height, width = shapes[number]
                number += 1
                length = height * width
                rows = torch.arange(height).repeat_interleave(width)
                pieces.append(torch.stack([torch.zeros_like(rows), rows, torch.arange(width).repeat(height)]) + start)
                start += max(height, width)
            else:
                length = next((n for n, image in enumerate(is_image[index:]) if image), len(is_image) - index)
                pieces.append(torch.arange(length).expand(3, -1) + start)
                start += length
            index += length
        found = torch.cat(pieces, dim=1) if pieces else positions[:, row, :0]
        if found.shape[1] != len(at):
            raise _mismatch(int(images.sum()), shapes)
        positions[:, row, at] = found
    if number != len(shapes):
        raise _mismatch(int(images.sum()), shapes)
    return positions.to(attention_mask.device)


def _mismatch(tokens: int, shapes: list[tuple[int, int]]) -> BatchError:
    return BatchError(
        "Image tokens and images do not match.",
        why=f"{tokens} image tokens in input_ids, image_grid_thw says {sum(h * w for h, w in shapes)}",
        fix="prepare input_ids, pixel_values and image_grid_thw together",
    )
