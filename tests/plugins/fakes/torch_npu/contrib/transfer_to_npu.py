"""Does what the real module does to the whole process: torch.cuda answers for the NPU."""

import torch

torch.cuda.is_available = lambda: True
