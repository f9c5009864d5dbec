"""GR00T's steps and data path, ours against upstream's way, on equal weights, inputs and draws."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
import torch

from benchmarks import groot_model, measure
from benchmarks.dit4dit import EQUAL, peak, ratio
from benchmarks.groot_operations import count
from benchmarks.report import Row, Section
from benchmarks.upstream_groot import Upstream
from vla_backend import Backend
from vla_backend.errors import UnsupportedError
from vla_groot import tiny
from vla_groot.data import build_dataset
from vla_groot.feature_cache import FeatureCache, content_id
from vla_groot.model import Groot
from vla_train.config import load_config
from vla_train.data import source
from vla_train.train.setup import compile_regions

DEMONSTRATIONS = Path(__file__).parents[1] / "examples" / "data"
BATCH, SAMPLES, ROUNDS = 4, 200, 3


def measure_all(backend: Backend) -> list[Section]:
    """Steps and data path."""
    pair = Pair(backend)
    steps = [
        pair.agreement(),
        ratio("training step, backbone frozen", pair.steps()),
        ratio("`get_action`", pair.predictions()),
        ratio("features of the frozen backbone", pair.features()),
        ratio("forward and backward, backbone frozen", pair.gradients()),
    ]
    with tempfile.TemporaryDirectory() as folder:
        kept = pair.kept(Path(folder))
        steps.insert(2, ratio("training step, backbone frozen, features on disk", kept, 1.3, rounds=7))
    compiled = pair.compiled()
    if compiled is not None:
        steps.insert(3, ratio("training step, backbone frozen, `train.compile`", compiled))
    memory = [
        peak("training step, backbone frozen", pair.gradients(), 1.0),
        peak("`get_action`", pair.predictions(), 1.0),
    ]
    return [
        Section("GR00T N1.7: steps", _STEPS, steps),
        Section("GR00T N1.7: operations", _OPERATIONS, pair.operations()),
        Section("GR00T N1.7: peak memory", _MEMORY, memory),
        Section("GR00T N1.7: data", _DATA, [data_path(backend)]),
    ]


class Pair:
    """One model and upstream's way on its weights."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.model = groot_model.build(backend).train()
        self.upstream = Upstream(self.model).train()
        self.batch = groot_model.batch(BATCH)
        self.observation = {key: value for key, value in self.batch.items() if key not in ("action", "action_mask")}

    def gradients(self) -> measure.Functions:
        """Forward and backward."""

        def train(way: Any) -> None:
            way(self.batch)["action_loss"].backward()
            way.zero_grad(set_to_none=True)

        return {"upstream": lambda: train(self.upstream), "ours": lambda: train(self.model)}

    def steps(self, ours: Groot | None = None) -> measure.Functions:
        """Forward, backward, clipping of the gradients, and the optimizer: AdamW as published fine-tuning has it."""
        return {"upstream": _step(self.upstream, self.batch), "ours": _step(ours or self.model, self.batch, fused=True)}

    def kept(self, folder: Path) -> measure.Functions:
        """Steps with the features of ours on disk, as from the second epoch on."""
        model = groot_model.build(self.backend).train()
        model.feature_cache = FeatureCache(model.backbone, "cpu", 10**9, padding_seen=True, folder=folder)
        parts = self.batch["input_ids"], self.batch["pixel_values"].unflatten(0, (BATCH, -1))
        # The loader's workers name the samples.
        self.batch["content_ids"] = [content_id(ids, pixels, None) for ids, pixels in zip(*parts, strict=True)]
        return self.steps(model)

    def compiled(self) -> measure.Functions | None:
        """Steps with the blocks of ours compiled; None where there is no compiler."""
        model = groot_model.build(self.backend).train()
        try:
            compile_regions(model, self.backend)
        except UnsupportedError:
            return None
        return self.steps(model)

    def operations(self) -> list[Row]:
        """Operations of both steps by part; what upstream has and we do not is the most that speed can gain."""
        rows = []
        for step, functions in (("training step", self.gradients()), ("`get_action`", self.predictions())):
            upstream, ours = (count(functions[way]) for way in ("upstream", "ours"))
            for part in upstream:
                share = f"{upstream[part] / ours[part]:.2f}x " if ours[part] else ""
                figure = f"{share}(upstream {upstream[part]:.1f}, ours {ours[part]:.1f})"
                rows.append(Row(f"{step}: {part}", figure))
        return rows

    def predictions(self) -> measure.Functions:
        return {
            "upstream": lambda: self.upstream.get_action(self.observation),
            "ours": lambda: self.model.get_action(self.observation),
        }

    def features(self) -> measure.Functions:
        return {
            "upstream": lambda: self.upstream.features(self.batch),
            "ours": lambda: self.model.features(self.batch),
        }

    def agreement(self) -> Row:
        """The largest difference between upstream's and our loss and actions, from equal draws."""
        found: list[list[torch.Tensor]] = []
        for way in (self.upstream, self.model):
            torch.manual_seed(0)
            with torch.no_grad():
                found.append([way(self.batch)["action_loss"], way.get_action(self.observation).clone()])
        largest = max((a - b).abs().max().item() for a, b in zip(*found, strict=True))
        return Row("largest difference of losses and actions", f"{largest:.1e}", f"{EQUAL:g}", largest <= EQUAL)


def _step(way: Any, batch: Any, **adamw: Any) -> Callable[[], None]:
    """A training step; it starts from the same weights each time, as far as float32 can tell."""
    trained = [parameter for parameter in way.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-12, weight_decay=1e-5, **adamw)

    def step() -> None:
        way(batch)["action_loss"].backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def data_path(backend: Backend) -> Row:
    """Samples per second in the order of training, against a decoder that is opened for every sample."""
    with tempfile.TemporaryDirectory() as folder:
        tiny.save(Path(folder), backend)
        settings = [
            f"model.base_model={folder}",
            "model.action_steps=8",
            f"data.root={DEMONSTRATIONS}",
            "data.datasets=[{path: metaworld_button_press_topdown}]",
        ]
        dataset = build_dataset(load_config([], settings, "groot")[0], backend.video_ctx)

        def ours() -> None:
            for index in range(SAMPLES):
                dataset[index]

        def upstream() -> None:
            kept, source.read_clip = source.read_clip, _decode_from_the_start
            try:
                ours()
            finally:
                source.read_clip = kept

        taken = measure.seconds({"upstream": upstream, "ours": ours}, ROUNDS)
    found = measure.ratio(taken, "upstream", "ours")
    speed = ", ".join(f"{name} {SAMPLES / median(values):.0f}/s" for name, values in taken.items())
    return Row("samples per second of one process", f"{found:.1f}x ({speed})", "3x", found >= 3)


def _decode_from_the_start(clip: Any, timestamps: Sequence[float], context: Any) -> np.ndarray:
    """What reads a video without an index does: open it, and decode until the last frame asked for."""
    with av.open(str(clip.path)) as container:
        frames = list(_until(container.decode(video=0), max(timestamps)))
    times = np.array([time for time, _ in frames])
    return np.stack([frames[int(np.abs(times - wanted).argmin())][1] for wanted in timestamps])


def _until(frames: Any, last: float) -> Iterator[tuple[float, np.ndarray]]:
    for frame in frames:
        yield frame.time, frame.to_ndarray(format="rgb24")
        if frame.time >= last:
            return


_STEPS = """\
Forward, backward, clipping and AdamW of a random model with the released one's proportions, an eighth as wide, 4
samples of two views; processor seconds of one core. Upstream computes the language head over all positions, gathers
the embodiment's weights for every sample, projects all features to keys and values in every cross-attention, at every
denoising step, and fine-tunes with the AdamW that is not fused; ours projects the tokens that a block sees, once. With
`model.feature_cache` the frozen backbone sees every sample once in all epochs; images are then not augmented. With
`train.compile` the compiler fuses what lies between the matrix products."""
_OPERATIONS = """\
Billions of floating-point operations of the matrix products of the same steps. What upstream computes for nothing is
its language head and half of the keys and values, for `get_action` seven eighths of them; everything else is the
model. So leaving work out of a single step cannot reach 1.3x, here or at the released widths (1.14x and 1.22x); not
computing the same features in every epoch does."""
_MEMORY = "Most bytes of tensors alive at once, beyond weights and inputs."
_DATA = """\
Samples of the shipped demonstrations, complete with image pipeline, tokens and patches, in the order of training;
upstream's way opens the video for every sample and decodes from its start."""
