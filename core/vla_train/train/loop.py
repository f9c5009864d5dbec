"""The training loop: fetch, move, forward under autocast, backward, clip, step, schedule, log, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vla_train.checkpoint import layout
from vla_train.checkpoint.manifest import Manifest, config_hash
from vla_train.checkpoint.resume import Found, restore, restore_rng
from vla_train.checkpoint.save import save
from vla_train.checkpoint.state import TrainingState
from vla_train.config.typed import plain
from vla_train.launch.runs import adopt_config
from vla_train.train.decisions import versions
from vla_train.train.errors import DataWorkerDied, TrainError
from vla_train.train.heartbeat import BACKWARD, DATA, EVALUATE, FORWARD, SAVE, UPDATE, Heartbeat
from vla_train.train.interrupt import Interrupt
from vla_train.train.loggers import Logger, Progress, build_loggers
from vla_train.train.meter import Meter
from vla_train.train.schedule import fast_forward
from vla_train.train.setup import Parts

Evaluate = Callable[[Parts, int], Mapping[str, float]]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: optimizer steps done.
        interrupted: name of the signal that ended it early, or "".
        checkpoint: the last one written.
        loss: the total loss last logged; None if no step was made.
    """

    step: int
    interrupted: str
    checkpoint: Path
    loss: float | None


class Trainer:
    """Runs the loop over `parts`.

    Args:
        parts: what `set_up` built.
        evaluate: `(parts, step) -> scalars by name`, called on every rank every `train.eval_interval` steps.
        found: the checkpoint to continue from, whose data position `parts.loader` already has.
    """

    def __init__(self, parts: Parts, evaluate: Evaluate | None = None, found: Found | None = None) -> None:
        self.parts, self.evaluate, self.found = parts, evaluate, found
        self.train, self.world, self.backend = parts.config.train, parts.world, parts.backend
        self.step = 0
        self.meter = Meter(self.world, parts.folder)
        self.loggers: list[Logger] = []
        self.bar: Progress | None = None
        self.loss: float | None = None
        self._saved: Path | None = None
        self._tree = plain(parts.config)
        timeout = parts.config.parallel.dist_timeout
        self.heartbeat = Heartbeat(parts.folder, self.world.rank, self.world.world_size, timeout)

    def run(self) -> Outcome:
        """Train from the start or from the newest checkpoint until `train.max_steps` or a signal.

        Raises:
            NonFiniteLoss: a loss is NaN or infinite.
            CheckpointError: resuming or saving failed.
        """
        train, parts = self.train, self.parts
        self._restore()
        if self.world.is_main:
            adopt_config(parts.folder)
            self.loggers = build_loggers(parts.config.run, parts.folder, resumed_at=self.step, config=self._tree)
            self.bar = Progress(train.max_steps, self.step)
        reason = ""
        try:
            with Interrupt(self.world) as interrupt, self.heartbeat:
                while self.step < train.max_steps:
                    self.one_step(log=_due(self.step + 1, train.log_interval) or self.step + 1 == train.max_steps)
                    if _due(self.step, train.eval_interval) and self.evaluate is not None:
                        self.heartbeat.at(self.step, EVALUATE)
                        with self.meter.pause():
                            self._log(self.evaluate(parts, self.step))
                    stop = interrupt.stop_now()
                    if stop:
                        reason = interrupt.caught.name if interrupt.caught else "a signal on another rank"
                    if stop or _due(self.step, train.save_interval) or self.step == train.max_steps:
                        self.heartbeat.at(self.step, SAVE)
                        with self.meter.pause():
                            self.save()
                    if stop:
                        break
            if self._saved is None:  # resumed when already complete
                self._saved = parts.folder / layout.FOLDER / layout.step_name(self.step)
            return Outcome(self.step, reason, self._saved, self.loss)
        except Exception as error:
            known = self._dead_worker(error) or self.heartbeat.explain(error)
            if known is error:
                raise
            raise known from error
        finally:
            parts.loader.close()
            for logger in self.loggers:
                logger.close()
            if self.bar is not None:
                self.bar.close()

    def one_step(self, log: bool) -> None:
        """One optimizer step; values are read from the device only if `log`."""
        strategy, accumulation = self.parts.strategy, self.train.gradient_accumulation_steps
        started = time.perf_counter()
        self.heartbeat.at(self.step + 1, DATA)
        batches = [next(self.parts.loader) for _ in range(accumulation)]
        data_s = time.perf_counter() - started
        ids = [sample for batch in batches for sample in batch.get("sample_ids", ())]
        self.heartbeat.at(self.step + 1, FORWARD, ids)
        shares = self._shares(batches)
        summed: dict[str, torch.Tensor] = {}
        for number, batch in enumerate(batches):
            last = number == accumulation - 1
            self.heartbeat.at(self.step + 1, FORWARD)
            with strategy.accumulating(last):
                losses = strategy.forward(self.backend.to_device(batch))
                losses = {
                    name: loss * shares[name][number] if name in shares else loss for name, loss in losses.items()
                }
                losses["total_loss"] = self._total(losses)
                self.heartbeat.at(self.step + 1, BACKWARD)
                strategy.backward(losses["total_loss"], last)
            for name, loss in losses.items():
                summed[name] = summed.get(name, 0) + loss.detach() / accumulation
        self.heartbeat.at(self.step + 1, UPDATE)
        norm = strategy.step(want_norm=log)
        rates = {group["name"]: group["lr"] for group in self.parts.optimizer.param_groups}
        self.parts.scheduler.step()
        self.step += 1
        size = accumulation * self.parts.config.data.batch_size
        self.meter.add(self.step, summed, ids, size, data_s)
        if self.bar is not None:
            self.bar.advance()
        if log:
            self.meter.check()
            self._log_step(rates, norm)

    def _dead_worker(self, error: Exception) -> DataWorkerDied | None:
        died, loader = self.parts.loader.death(error), self.parts.loader
        if died is None:
            return None
        step = self.step + 1
        path = self.parts.folder / f"data_worker_rank{self.world.rank}.json"
        layout.write_json(path, {"step": step, "rank": self.world.rank, "samples": loader.awaited})
        some = ", ".join(str(sample["sample_id"]) for sample in loader.awaited[: self.parts.config.data.batch_size])
        return DataWorkerDied(
            f"Step {step}, rank {self.world.rank}: {died.what}",
            why=f"{died.why}; the next batch was {some} (saved with those being loaded in {path})",
            fix=f"{died.fix}; the same command continues from the newest checkpoint",
        )

    def save(self) -> Path:
        """Write a checkpoint of this step; call on every rank.

        Raises:
            NonFiniteLoss: a loss since the last log line was not finite, so the weights are not worth keeping.
        """
        self.meter.check()
        # An error of work still queued on the device surfaces here, before a file is written.
        self.backend.synchronize()
        parts, config = self.parts, self.parts.config
        manifest = Manifest(
            self.step, self.world.world_size, config.parallel.strategy, config_hash(self._tree), versions=versions()
        )
        self._saved = save(
            parts.folder / layout.FOLDER,
            self._state(),
            manifest,
            scaler=parts.strategy.scaler_state(),
            position=parts.loader.position(),
            backend=self.backend,
            world=self.world,
            keep=self.train.keep_checkpoints,
        )
        return self._saved

    def _restore(self) -> None:
        found, parts = self.found, self.parts
        if found is None:
            return
        scaler = restore(found, self._state(), self.backend)
        self.step = found.manifest.step
        fast_forward(parts.scheduler, self.step)
        parts.strategy.load_scaler_state(scaler)
        changes = [restore_rng(found, self.backend, self.world, parts.config.run.seed)]
        before, now = found.manifest.strategy, parts.config.parallel.strategy
        if before != now:
            changes.append(f"{before} -> {now}")
            if parts.config.parallel.mixed_precision == "fp16":
                changes.append("the loss scale starts anew")
        said = "".join(f"; {change}" for change in changes if change)
        self.say(f"continues from {found.folder} (step {self.step}){said}")

    def say(self, message: str) -> None:
        """Tell the user, once for all ranks."""
        if self.world.is_main:
            if self.bar is not None:
                self.bar.say(message)
            else:
                print(message, flush=True)

    def _state(self) -> TrainingState:
        parts = self.parts
        return TrainingState(
            parts.model, parts.optimizer, self.world.rank, self.world.world_size, parts.strategy.deepspeed
        )

    def _total(self, losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
        weights = self.train.loss_weights
        unknown = set(weights) - set(losses)
        if unknown and self.step == 0:
            raise TrainError(
                f"train.loss_weights names {', '.join(sorted(unknown))}.",
                why=f"the model's losses are: {', '.join(losses)}",
                fix="remove it or correct the name",
            )
        return torch.stack([loss.float() * weights.get(name, 1.0) for name, loss in losses.items()]).sum()

    def _shares(self, batches: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Factors (batches,) per loss that make the mean over batches and ranks the mean over what the losses count.

        A masked loss is a mean over the elements its mask keeps. When batches keep different numbers of them, the
        mean of the means is not the loss of the whole; a model that answers `loss_counts(batch) -> {name: elements}`
        gets the loss of the whole, whatever the number of processes.
        """
        counts = getattr(self.parts.model, "loss_counts", None)
        pieces = len(batches) * self.world.world_size
        if counts is None or pieces == 1:
            return {}
        rows = [counts(batch) for batch in batches]
        local = torch.tensor([[float(row[name]) for name in rows[0]] for row in rows])
        total = self.world.sum(local.sum(dim=0).to(self.world.device))
        factors = (local.to(total.device) * pieces / total).to(self.backend.device)
        return dict(zip(rows[0], factors.unbind(dim=1), strict=True))

    def _log_step(self, rates: Mapping[str, float], norm: torch.Tensor | float | None) -> None:
        record = self.meter.record()
        memory = self.backend.memory_stats()
        record |= {f"learning_rate/{name}": rate for name, rate in rates.items()}
        record["learning_rate"] = next(iter(rates.values()))
        if norm is not None:
            record["grad_norm"] = float(norm)
        record |= {"memory_allocated": memory.allocated, "memory_peak": memory.peak}
        record["epoch"] = round(
            self.step * self.train.gradient_accumulation_steps / self.parts.loader.steps_per_epoch, 4
        )
        self.loss = record["total_loss"]
        record["seconds_left"] = record["step_time"] * (self.train.max_steps - self.step)
        self._log(record)
        if self.bar is not None:
            self.bar.show({"step": self.step, **record})

    def _log(self, record: Mapping[str, Any]) -> None:
        for logger in self.loggers:
            logger.log({"step": self.step, **record})


def _due(step: int, interval: int) -> bool:
    return interval > 0 and step % interval == 0
