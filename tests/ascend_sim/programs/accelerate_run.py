"""accelerate on two ranks: bf16 autocast, gradient accumulation, clipping, gather, and a state saved and loaded."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
assert (accelerator.device.type, accelerator.device.index) == ("npu", accelerator.process_index)
assert accelerator.state.backend == "hccl"
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 1))
data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


def epoch() -> float:
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            predicted = model(x)
            loss = nn.functional.mse_loss(predicted.float(), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()[None]))
    return torch.cat(losses).mean().item()


losses = [epoch() for _ in range(3)]
assert losses[2] < losses[0], losses
accelerator.save_state("state")
accelerator.wait_for_everyone()
weight = next(model.parameters()).detach().clone()
epoch()
assert not torch.equal(next(model.parameters()), weight)
accelerator.load_state("state")
assert torch.equal(next(model.parameters()), weight)
print(f"rank {accelerator.process_index} trained\n", end="", flush=True)  # one write: ranks share the pipe
accelerator.end_training()
