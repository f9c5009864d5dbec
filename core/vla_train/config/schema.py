"""The sections of a configuration; every field says what it does and in which unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vla_train.data.config import DataConfig


@dataclass
class RunConfig:
    """Where a run lives and what it writes.

    Attributes:
        id: name of the run; its folder is `root/id`.
        root: folder of all runs.
        seed: seed of every random generator; rank r uses seed + r for its draws.
        loggers: any of "jsonl", "tensorboard", "wandb".
        wandb_project, wandb_entity: used with the logger "wandb".
    """

    id: str = "run"
    root: str = "runs"
    seed: int = 42
    loggers: list[str] = field(default_factory=lambda: ["jsonl", "tensorboard"])
    wandb_project: str | None = None
    wandb_entity: str | None = None


@dataclass
class SchedulerConfig:
    """Learning rate over time.

    Attributes:
        name: a schedule of `transformers.get_scheduler`, e.g. "cosine_with_min_lr", "constant_with_warmup".
        min_lr: floor of the schedules that have one.
        floor: "group" keeps every parameter group's floor at `min_lr`; "base" scales it by group rate / base rate.
        arguments: further arguments of that schedule, e.g. {num_cycles: 3}; `min_lr_rate` takes the place of `min_lr`.
    """

    name: str = "cosine_with_min_lr"
    min_lr: float = 0.0
    floor: str = "group"
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass
class OptimizerConfig:
    """The optimizer.

    Attributes:
        name: a class of `torch.optim`.
        betas, eps, weight_decay: its arguments.
        fused: use the backend's fused implementation.
    """

    name: str = "AdamW"
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    weight_decay: float = 1e-8
    fused: bool = False


@dataclass
class TrainConfig:
    """The optimisation.

    Attributes:
        max_steps: optimizer steps.
        warmup_steps: steps of linear warm-up.
        save_interval: steps between checkpoints; 0 saves only at the end.
        keep_checkpoints: newest checkpoints kept; 0 keeps all.
        eval_interval: steps between evaluations on held-out data; 0 for none.
        log_interval: steps between log lines.
        learning_rate: rate per dotted module path; "base" is the rate of everything else.
        freeze: dotted module paths that are not trained.
        gradient_clipping: maximum norm of the gradient; null for none.
        gradient_accumulation_steps: batches per optimizer step.
        loss_weights: factor per loss name; 1 where not given.
        matmul_precision: "default", "high" or "highest".
        compile: compile the parts that the model names with the backend's compiler; the first steps take minutes.
        fused_kernels: use the chip's fused operators where the backend has some; equal up to rounding.
        pretrained_checkpoint: weights to start from, a file or run folder in the upstream project's format.
        reload_modules: dotted module paths to take from it; empty for all.
        resume: "auto" continues the newest complete checkpoint of this run, "never" refuses to overwrite one,
            a path names a checkpoint folder.
    """

    max_steps: int = 100_000
    warmup_steps: int = 0
    save_interval: int = 5000
    keep_checkpoints: int = 3
    eval_interval: int = 0
    log_interval: int = 10
    learning_rate: dict[str, float] = field(default_factory=lambda: {"base": 1e-5})
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    freeze: list[str] = field(default_factory=list)
    gradient_clipping: float | None = 1.0
    gradient_accumulation_steps: int = 1
    loss_weights: dict[str, float] = field(default_factory=dict)
    matmul_precision: str = "default"
    compile: bool = False
    fused_kernels: bool = True
    pretrained_checkpoint: str | None = None
    reload_modules: list[str] = field(default_factory=list)
    resume: str = "auto"


@dataclass
class ParallelConfig:
    """Processes and precision.

    Attributes:
        processes: processes on this machine, one per device.
        strategy: "ddp", "zero2" or "zero3"; one process with "ddp" is plain training.
        mixed_precision: "fp32", "bf16" or "fp16"; the only place where precision is set.
        dist_timeout: seconds until a collective that does not finish ends the job; sets every timeout.
        deepspeed: settings merged over the DeepSpeed configuration, or a path to a JSON file of them.
    """

    processes: int = 1
    strategy: str = "ddp"
    mixed_precision: str = "bf16"
    dist_timeout: int = 1800
    deepspeed: Any = None


@dataclass
class EvalConfig:
    """Open-loop evaluation on held-out episodes.

    Attributes:
        episodes: how many of the held-out episodes to use; 0 for all.
        batch_size: windows per forward pass.
        seed: seed of the action noise.
    """

    episodes: int = 0
    batch_size: int = 16
    seed: int = 0


@dataclass
class Config:
    """A complete configuration; `model` is an instance of the model's own dataclass."""

    backend: str = "auto"
    run: RunConfig = field(default_factory=RunConfig)
    model: Any = None
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
