"""accelerate with DeepSpeed ZeRO-3 and a Qwen3 of transformers on two ranks: training, a state saved and loaded."""

from __future__ import annotations

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from transformers import Qwen3Config, Qwen3ForCausalLM

plugin = DeepSpeedPlugin(zero_stage=3, gradient_clipping=1.0, zero3_save_16bit_model=False)
plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 4
accelerator = Accelerator(deepspeed_plugin=plugin)
assert (accelerator.device.type, accelerator.device.index) == ("npu", accelerator.process_index)
torch.manual_seed(0)
config = Qwen3Config(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
)  # fmt: skip
model = Qwen3ForCausalLM(config)
names = len(model.state_dict())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.arange(32 * 16).reshape(32, 16) % 7  # a pattern that can be learnt
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(tokens, batch_size=4))
assert type(model).__name__ == "DeepSpeedEngine"


def epoch() -> float:
    losses = []
    for batch in loader:
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()[None]))
    return torch.cat(losses).mean().item()


losses = [epoch() for _ in range(3)]
assert losses[2] < 0.7 * losses[0], losses
accelerator.save_state("deepspeed_state")
accelerator.wait_for_everyone()
expected = epoch()
accelerator.load_state("deepspeed_state")
assert epoch() == expected  # the same weights and optimizer state give the same epoch again
whole = model._zero3_consolidated_16bit_state_dict()
assert accelerator.process_index or len(whole) == names, (len(whole), names)
print(f"rank {accelerator.process_index} trained\n", end="", flush=True)  # one write: ranks share the pipe
accelerator.end_training()
