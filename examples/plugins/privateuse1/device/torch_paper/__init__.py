"""The device "paper": what a chip vendor's torch extension looks like from outside, written in Python alone.

`import torch_paper` takes torch's slot for out-of-tree devices (PrivateUse1), names it "paper" and registers

* the device module `torch.paper` (`runtime.py`): count, current device, synchronize, memory, seeds;
* a tensor type whose operators run on the host (`tensor.py`) and the few kernels that make tensors out of nothing;
* the operators that autocast computes in bfloat16 or float16 (`autocast.py`).

A process can have one such device, so it cannot be combined with another vendor's PrivateUse1 extension.
"""

from __future__ import annotations

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from torch_paper import runtime

NAME = "paper"
__version__ = "0.1.0"

_setup_privateuseone_for_python_backend(NAME, backend_module=runtime)
# `module.to("paper")` must change parameters in place, or an optimizer built before would keep those on the host.
# Tensors of different type cannot exchange data, only identity.
torch.__future__.set_swap_module_params_on_conversion(True)

from torch_paper import autocast, tensor  # noqa: E402  (they need the device)

autocast.register()
tensor.register()
