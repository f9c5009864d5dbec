"""Semantics of data loading: workers beside a trainer that holds the device, and decoded frames."""

from __future__ import annotations

from typing import Any, Final

from vla_train.conformance.checks import Failure, Skip, check
from vla_train.conformance.subject import Subject
from vla_train.conformance.tour import short

FRAMES: Final = 10
_WORKER_SECONDS: Final = 60


class Squares:
    """A dataset whose samples are computed by torch in the worker."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        import torch

        return (torch.full((64, 64), float(index)) @ torch.eye(64))[0, 0] ** 2


@check("device", seconds=180.0)
def workers_start_beside_the_device(subject: Subject) -> str:
    """Data workers started as dataloader_defaults says deliver while the trainer holds the device."""
    import torch
    from torch.utils.data import DataLoader

    backend = subject.ready
    (torch.ones(64, 64, device=subject.device) @ torch.ones(64, 64, device=subject.device)).sum().item()
    defaults = backend.dataloader_defaults
    try:
        loader: DataLoader[Any] = DataLoader(
            Squares(),  # type: ignore[arg-type]
            batch_size=4,
            num_workers=1,
            multiprocessing_context=defaults.start_method,
            prefetch_factor=defaults.prefetch_factor,
            pin_memory=backend.pin_memory_ok,
            timeout=_WORKER_SECONDS,
        )
        got = torch.cat([backend.to_device(batch).cpu() for batch in loader])
    except Exception as error:
        raise Failure(
            f"Data workers started by '{defaults.start_method}' do not deliver.",
            why=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            fix='answer "spawn": the device runtime or its threads do not survive this way of starting',
        ) from error
    if got.tolist() != [index**2 for index in range(8)]:
        raise Failure(f"Data workers started by '{defaults.start_method}' deliver other values.", why=short(got))
    return f"{defaults.start_method}, {defaults.num_workers} workers by default"


@check("device")
def ten_frames_are_decoded(subject: Subject) -> str:
    """Every decoder that video_ctx names and that is installed decodes the same ten frames of a small video."""
    import numpy as np

    from vla_backend import VideoContext
    from vla_train.data.decoders import defect, installed
    from vla_train.data.grey_video import RATE, SIDE, write_grey_video
    from vla_train.data.video import close_readers, read_frames, resolve_decoder

    context = subject.ready.video_ctx
    path = subject.folder / "frames.mp4"
    expected = write_grey_video(path, FRAMES)
    times = np.arange(FRAMES) / RATE
    able = resolve_decoder("auto", context)
    decoded = []
    for name in able.decoders:
        if not installed(name) or defect(name):
            continue
        try:
            frames = read_frames(path, times, VideoContext((name,), able.device, able.threads))
        except Exception as error:
            raise Failure(
                f"The decoder '{name}' cannot decode on '{able.device}'.",
                why=short(getattr(error, "why", "") or error),
                fix='answer device="cpu" from video_ctx, or leave the decoder out',
            ) from error
        brightness = frames.astype(np.float64).mean(axis=(1, 2, 3))
        if frames.shape != (FRAMES, SIDE, SIDE, 3) or np.abs(brightness - expected).max() > 3:
            raise Failure(
                f"The decoder '{name}' gives other frames.",
                why=f"mean brightness {brightness.round().tolist()}, expected {expected.tolist()}",
                fix="leave the decoder out of video_ctx",
            )
        decoded.append(name)
    close_readers()
    if not decoded:
        raise Skip(f"none of {', '.join(context.decoders)} is installed and able")
    return ", ".join(decoded)
