"""DiT4DiT's steps, ours against upstream's way, on equal weights, inputs and draws."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import measure, proportions
from benchmarks.report import Row, Section
from benchmarks.upstream_dit4dit import Upstream
from vla_backend import Backend
from vla_dit4dit.backbone import CosmosExtractor
from vla_dit4dit.features import project_context, project_text, run_transformer
from vla_dit4dit.latent_cache import LatentCache
from vla_dit4dit.model import DiT4DiT

ROUNDS = 3
#: Steps that take us less than a second differ more from round to round.
SHORT_ROUNDS = 7
#: Largest difference of a loss or an action that counts as equal.
EQUAL = 1e-5


class Pair:
    """One model and upstream's way on its weights."""

    def __init__(self, backend: Backend, mode: str, size: int = 2, frames: int = proportions.FRAMES) -> None:
        self.model: DiT4DiT = proportions.build(backend, mode, frames).train()
        self.upstream = Upstream(self.model)
        self.batch = proportions.batch(size, frames)
        self.observation = {**self.batch, "images": self.batch["images"][:, :1]}

    def train(self, way: Callable[[Any], dict[str, torch.Tensor]]) -> None:
        """Forward and backward; the optimizer is the same for both and not measured."""
        sum(way(self.batch).values()).backward()
        self.model.zero_grad(set_to_none=True)

    def steps(self) -> measure.Functions:
        return {"upstream": lambda: self.train(self.upstream), "ours": lambda: self.train(self.model)}

    def forwards(self) -> measure.Functions:
        return {"upstream": lambda: self.upstream(self.batch), "ours": lambda: self.model(self.batch)}

    def predictions(self) -> measure.Functions:
        return {
            "upstream": lambda: self.upstream.predict_action(self.batch),
            "ours": lambda: self.model.predict_action(self.observation),
        }


def steps(backend: Backend) -> Section:
    """Agreement and the times of steps."""
    joint, action = Pair(backend, "joint"), Pair(backend, "action")
    cached = Pair(backend, "action")
    embeddings = cached.upstream.encode_prompts(cached.batch["lang"]).detach()
    cached.upstream.encode_prompts = lambda _: embeddings  # type: ignore[method-assign]
    rows = [
        agreement(joint, action),
        ratio("joint training step", joint.steps(), 2.0),
        ratio("joint forward", joint.forwards()),
        ratio("action training step", action.steps(), 6.0, rounds=SHORT_ROUNDS),
        ratio("action training step, upstream with cached prompts too", cached.steps()),
        ratio("`predict_action`", joint.predictions(), 6.5, rounds=SHORT_ROUNDS),
    ]
    return Section("DiT4DiT: steps", _STEPS, rows)


def memory(backend: Backend) -> Section:
    """Most memory of steps."""
    joint, action = Pair(backend, "joint"), Pair(backend, "action")
    rows = [
        peak("joint training step", joint.steps(), 1.8),
        peak("action training step", action.steps(), 2.3),
        peak("`predict_action`", joint.predictions(), 2.3),
    ]
    return Section("DiT4DiT: peak memory", _MEMORY, rows)


def ratio(
    what: str,
    functions: measure.Functions,
    bound: float | None = None,
    rounds: int = ROUNDS,
    warm: Collection[str] | None = None,
) -> Row:
    """A row that says how many times faster "ours" is than "upstream"; `warm` as in `measure.seconds`."""
    taken = measure.seconds(functions, rounds, warm)
    found = measure.ratio(taken, "upstream", "ours")
    seconds = ", ".join(f"{name} {median(values):.2f} s" for name, values in taken.items())
    if bound is None:
        return Row(what, f"{found:.1f}x ({seconds})")
    return Row(what, f"{found:.1f}x ({seconds})", f"{bound:g}x", found >= bound)


def peak(what: str, functions: measure.Functions, bound: float) -> Row:
    """A row that says how many times less memory "ours" needs than "upstream"."""
    peaks = {name: measure.peak_bytes(function) for name, function in functions.items()}
    found = peaks["upstream"] / peaks["ours"]
    figure = ", ".join(f"{name} {value / 2**20:.0f} MiB" for name, value in peaks.items())
    return Row(what, f"{found:.1f}x ({figure})", f"{bound:g}x", found >= bound)


def agreement(joint: Pair, action: Pair) -> Row:
    """The largest difference between upstream's and our losses and actions, from equal draws."""
    largest = 0.0
    for functions in (joint.forwards(), action.forwards(), joint.predictions()):
        results = []
        for function in functions.values():
            torch.manual_seed(0)
            with torch.no_grad():
                result = function()
            results.append(torch.stack(list(result.values())) if isinstance(result, dict) else result.clone())
        largest = max(largest, (results[0] - results[1]).abs().max().item())
    return Row("largest difference of losses and actions", f"{largest:.1e}", f"{EQUAL:g}", largest <= EQUAL)


def parts(backend: Backend) -> Section:
    """Each part of the joint step and of `predict_action` by itself."""
    pair = Pair(backend, "joint")
    upstream, extractor, batch = pair.upstream, pair.upstream.extractor, pair.batch
    video = batch["images"].transpose(1, 2) * 2 - 1
    latents = torch.randn(extractor.latents.shape(video.shape[0], *video.shape[2:]))
    mask = torch.zeros_like(latents[:, :1])
    mask[:, :, 0] = 1
    embeddings = upstream.encode_prompts(batch["lang"]).detach()
    time = torch.full((video.shape[0],), extractor.feature_time)
    features = torch.randn(video.shape[0], mask[0].numel() // 4, extractor.width)
    head, draws = pair.model.action_model, pair.model.draws

    def encode_twice() -> None:
        upstream.encode_condition(video[:, :, :1], video.shape[2])
        upstream.encode(video)

    def velocity(run: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def step() -> None:
            run().square().mean().backward()
            pair.model.zero_grad(set_to_none=True)

        return step

    def without_graph(function: Callable[[], Any]) -> Callable[[], Any]:
        return torch.no_grad()(function)

    folder = tempfile.TemporaryDirectory(prefix="vla-bench-")
    cache = LatentCache(extractor.latents, 10**9, Path(folder.name))
    observed = {"images": batch["images"][:, :1], "instructions": batch["lang"]}
    rows = [
        ratio(
            "text encoder (ours cached)",
            {
                "upstream": without_graph(lambda: upstream.encode_prompts(batch["lang"])),
                "ours": lambda: extractor.prompts.unique(batch["lang"], video.device),
            },
        ),
        ratio(
            "VAE of a joint step",
            {"upstream": without_graph(encode_twice), "ours": lambda: extractor.latents.posterior(video)},
        ),
        ratio(
            "VAE of a joint step, latents on disk",
            {"upstream": without_graph(encode_twice), "ours": lambda: cache.posterior(video)},
        ),
        ratio(
            "VAE of `predict_action`",
            {
                "upstream": without_graph(lambda: upstream.encode_condition(video[:, :, :1], video.shape[2])),
                "ours": lambda: extractor.latents.posterior(video[:, :, :1]),
            },
        ),
        ratio(
            "feature pass with its VAE and text projection, against upstream's pass alone",
            {
                "upstream": lambda: upstream.feature_pass(latents, mask, embeddings),
                "ours": without_graph(lambda: extractor(**observed, draws=draws, features=True, video_loss=False)),
            },
        ),
        ratio(
            "transformer with gradients",
            {
                "upstream": velocity(lambda: upstream.transformer(latents, mask, time, embeddings)),
                "ours": velocity(lambda: _velocity(extractor, latents, mask, embeddings)),
            },
        ),
        ratio(
            "action loss, forward",
            {
                "upstream": lambda: upstream.action_loss(features, batch),
                "ours": lambda: head.loss(
                    features, batch["action"], batch["action_mask"], batch["state"], draws=draws, repeats=4
                ),
            },
        ),
        ratio(
            "action sampling, 4 Euler steps",
            {
                "upstream": without_graph(lambda: upstream.sample(features, batch["state"])),
                "ours": lambda: head.sample(features, batch["state"], draws=draws),
            },
        ),
    ]
    folder.cleanup()
    return Section("DiT4DiT: parts of the steps", _PARTS, rows)


def scaling(backend: Backend) -> Section:
    """The joint step at other batch sizes and clip lengths."""
    rows = []
    for size, frames in ((4, 5), (1, 5), (1, 9), (1, 17)):
        pair = Pair(backend, "joint", size, frames)
        # Ours embeds its prompts in the first call; upstream's first call is like all others, once memory is there.
        warm = {"ours"} if rows else None
        rows.append(ratio(f"batch {size}, {frames} frames", pair.steps(), rounds=1, warm=warm))
    return Section("DiT4DiT: batch size and clip length", _SCALING, rows)


def _velocity(
    extractor: CosmosExtractor, latents: torch.Tensor, mask: torch.Tensor, embeddings: torch.Tensor
) -> torch.Tensor:
    transformer = extractor.transformer
    times = torch.full((latents.shape[0], 1, latents.shape[2], 1, 1), extractor.feature_time)
    times[:, :, 0] = extractor.config.conditional_frame_timestep
    context = project_context(transformer, project_text(transformer, embeddings))
    return run_transformer(transformer, latents, mask, times, context).velocity


_STEPS = (
    "Upstream's way (`benchmarks/upstream_dit4dit.py`) against ours in one process, taking turns, median of the ratios "
    f"of {ROUNDS} rounds, {SHORT_ROUNDS} where ours takes less than a second; processor seconds of one thread. A "
    "random model of the published one's proportions "
    "(`benchmarks/proportions.py`: 28 blocks, features after block 17, 28 text layers, Wan VAE, 16 action blocks), "
    "224 x 448 pixels, 5 frames, batch 2, float32. At full size, by floating-point operations, the same changes give "
    "2.0x, 6.4x and 6.5x."
)
_MEMORY = "Most bytes of tensors alive at once during the call, beyond weights and caches, as torch's profiler counts."
_PARTS = "The same comparison part by part; a part that upstream runs once and we run never is not listed."
_SCALING = "The joint training step, one round each."
