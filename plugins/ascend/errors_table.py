"""What CANN, HCCL and torch_npu say, and what it means; the particular before the general."""

from __future__ import annotations

from typing import Final

from vla_backend.explain import KnownError

_SOURCE = "source the set_env.sh of CANN in the shell that starts the job"
_FIRST = "Look for the first error among the logs of all ranks"

#: Failures while the stack is imported.
_IMPORT: Final = (
    KnownError(
        r"No module named 'torch_npu'",
        "torch_npu is not installed.",
        "torch reaches the NPU only through it.",
        "pip install the torch_npu of the same version as torch; `vla backends` prints the command.",
    ),
    KnownError(
        r"libascend_hal\.so",
        "The driver's libraries are missing.",
        "CANN talks to the NPU through libascend_hal.so, which the driver on the host brings.",
        "Mount the host's /usr/local/Ascend/driver into the container, or install the driver.",
    ),
    KnownError(
        r"lib(c10|torch|torch_cpu|torch_python|torch_npu)\.so: cannot open shared object file",
        "A library of torch or torch_npu is not found.",
        "Something was loaded before torch or outside Python, and the linker does not search the wheels' lib folders.",
        "Start the job with `vla train --backend ascend`: it puts <torch>/lib and <torch_npu>/lib on LD_LIBRARY_PATH.",
    ),
    KnownError(
        r"lib(ascendcl|hccl|ge_runner|graph|acl_op_compiler|runtime|opapi)\.so: cannot open shared object file",
        "A library of CANN is not found.",
        "CANN is not installed, or its environment is not set in this shell.",
        f"Install CANN, and {_SOURCE}.",
    ),
    KnownError(
        r"undefined symbol",
        "Libraries of different versions met.",
        "torch and torch_npu must agree to the patch version, and torch_npu is made for one CANN release.",
        "Install the torch_npu of the same version as torch, and the CANN release that it names; mx_driving's compiled "
        "part has a torch range of its own.",
    ),
    KnownError(
        r"Two accelerators cannot be used at the same time in PyTorch: npu and npu",
        "torch_npu was imported a second time.",
        "The first import failed half-way and left the device registered; this message hides the first error.",
        "Look for the first import error in the log; nothing but the backend should import torch_npu or mx_driving.",
    ),
    KnownError(
        r"Two accelerators cannot be used at the same time",
        "torch already uses another accelerator.",
        "This is a torch build for another chip, and the machine has one.",
        "Install the CPU build of the same torch version, or choose the backend of the other chip.",
    ),
    KnownError(
        r"ASCEND_(OPP|RUNTIME|COMPILER|HOME)_PATH",
        "CANN's environment is incomplete.",
        "torch_npu and DeepSpeed look for CANN through these variables.",
        f"{_SOURCE[0].upper()}{_SOURCE[1:]}.",
    ),
    KnownError(
        r"cannot allocate memory in static TLS block",
        "libgomp was loaded too late.",
        "On aarch64 the room for thread-local data is used up by libraries loaded before it.",
        "Start with LD_PRELOAD set to the libgomp named in the message.",
    ),
    KnownError(
        r"cannot import name '(TransformersNPU|Patcher|default_patcher\w*)'|No module named 'mx_driving",
        "mx_driving has another interface than the code expects, or is missing.",
        "Its patcher moved and changed between releases, and wheels lack classes that the sources have.",
        "Do not import it yourself: the backend uses whichever interface is installed and reports what it applied.",
    ),
)

#: Failures between processes. HCCL's codes begin with EI and EJ.
_HCCL: Final = (
    KnownError(
        r"assigned to (the )?same device|EI0004|hcom init failed|hcclCommInitRootInfo",
        "HCCL could not set up its communicator.",
        "Usually two ranks share one NPU because there are more processes than visible NPUs; or the ranks see "
        "different devices.",
        "Set parallel.processes to the number of visible NPUs at most, and look at ASCEND_RT_VISIBLE_DEVICES.",
    ),
    KnownError(
        r"EI0006|HCCL_CONNECT_TIMEOUT",
        "Ranks did not meet in time.",
        "Another rank has not reached the first collective (still loading, or dead), or the network between the NPUs "
        "is down.",
        f"{_FIRST}; raise parallel.dist_timeout if a rank is only slow; check the links with hccn_tool.",
    ),
    KnownError(
        r"EI0002|HCCL_EXEC_TIMEOUT|hccl.*time ?out|notify wait.*time ?out",
        "A collective did not finish in time.",
        "One rank died, hangs, or runs other collectives than the rest; the ranks that wait report it.",
        f"{_FIRST}; raise parallel.dist_timeout if a rank is only slow, or lower DeepSpeed's bucket sizes on a busy "
        "network.",
    ),
    KnownError(
        r"EJ0003|EI0019|bind.*port.*(fail|already)",
        "A port that HCCL wants is taken.",
        "Another job, or a connection that got a number from 60000 on, holds it.",
        "Unset HCCL_IF_BASE_PORT so that the launcher finds a free block, or end the other job.",
    ),
    KnownError(
        r"EI0001|EI0003|EI0005",
        "HCCL got an invalid setting or inconsistent arguments.",
        "An HCCL_* variable is wrong, or the ranks disagree in the shape or type of a collective.",
        "Compare the HCCL_* variables of all ranks, and see which collective the message names.",
    ),
)

#: Failures on the device, by number as AscendCL returns them.
_DEVICE: Final = (
    KnownError(
        r"NPU out of memory|OutOfMemoryError|EL0004|\b207018\b|\b207001\b|Failed to allocate memory",
        "An NPU ran out of memory.",
        "Model, gradients, optimizer state and activations of one rank exceed what is free on its NPU.",
        "Lower data.batch_size and raise train.gradient_accumulation_steps, use parallel.strategy=zero2 or zero3, and "
        "see with npu-smi info whether another process holds memory.",
    ),
    KnownError(
        r"\b107001\b|invalid device id",
        "A process asked for an NPU it cannot see.",
        "The rank is higher than the number of visible NPUs, or a physical number was used: they count from 0 within "
        "ASCEND_RT_VISIBLE_DEVICES.",
        "Set parallel.processes to the number of visible NPUs at most; `vla backends` prints it.",
    ),
    KnownError(
        r"\b107002\b|context is empty|context is null",
        "A thread used the NPU without having chosen one.",
        "The choice of a device holds for one thread, and is lost after a fork.",
        "Call backend.local_device(local_rank) in the process, and keep NPU tensors out of data workers.",
    ),
    KnownError(
        r"\b507033\b|Failed to start the device",
        "The NPU could not be opened.",
        "Another container or virtual machine holds it, it is in a fault state, or this user may not open it.",
        "Look at npu-smi info for health and processes; add the user to the group HwHiAiUser; reset the card if idle.",
    ),
    KnownError(
        r"\b507899\b|\b507901\b|driver module|HDC session",
        "The driver failed.",
        "The connection to the NPU broke: after a reset, by a driver older than CANN needs, or by a hardware fault.",
        "Look at npu-smi info and dmesg; compare the driver with what the CANN release asks for; restart the driver.",
    ),
    KnownError(
        r"\b507015\b|\b507035\b|\b507042\b|aicore exception|vector core exception|AI ?Core.*abnormal",
        "A kernel failed on the NPU.",
        "Usually an index out of range or an operator's bug with this shape; launches are asynchronous, so the "
        "traceback shows a later line.",
        "Run again with ASCEND_LAUNCH_BLOCKING=1, which names the operator, or on --backend cpu.",
    ),
    KnownError(
        r"\b507014\b|\b507017\b|\b507018\b|\b507034\b|\b507046\b|\b507048\b|\b107019\b|aicpu (exception|timeout)",
        "Work on the NPU did not finish, or failed on its scalar processor.",
        "An operator on the AI CPU is slow or failed, or a collective before it waits for another rank.",
        f"{_FIRST}; run with ASCEND_LAUNCH_BLOCKING=1 to see the operator.",
    ),
    KnownError(
        r"UCE ERROR|uncorrectable|\b507010\b|\b507013\b|HBM MULTI BIT ECC",
        "The NPU has a hardware fault.",
        "Its memory or its task scheduler reports an error that cannot be corrected.",
        "Take the card out of ASCEND_RT_VISIBLE_DEVICES and resume from the last checkpoint; see npu-smi info -t ecc.",
    ),
    KnownError(
        r"\b148049\b|\b500001\b|\b500002\b|tbe\.common|No module named '(tbe|te|decorator|scipy|attrs|attr|psutil)'",
        "CANN's operator compiler did not start.",
        "Its Python part is not on PYTHONPATH, or lacks packages that CANN uses but does not declare.",
        f"{_SOURCE[0].upper()}{_SOURCE[1:]}, and pip install attrs decorator psutil scipy.",
    ),
)

#: Code written for another chip.
_CODE: Final = (
    KnownError(
        r"cannot pin '",
        "A tensor on the NPU was to be pinned.",
        "Only host memory can be pinned; something moved the batch to the NPU before the data loader pinned it.",
        "Keep the dataset and the collate function on the CPU; this backend answers pin_memory_ok=False.",
    ),
    KnownError(
        r"'NoneType' object is not (subscriptable|iterable)[\s\S]*capability|get_device_capability|"
        r"cannot unpack non-iterable NoneType",
        "Code asked for a CUDA compute capability.",
        "An NPU has none: torch_npu answers None.",
        "Ask the backend for what is needed (compute_dtype, attention_impl) instead of comparing numbers.",
    ),
    KnownError(
        r"Torch not compiled with CUDA enabled|no CUDA-capable device is detected|No CUDA GPUs are available|"
        r"Found no NVIDIA driver",
        "Code asked for CUDA.",
        "A device was given as an integer or as 'cuda', or a decoder was asked for a GPU.",
        "Use backend.device and backend.video_ctx; never pass bare integers as devices.",
    ),
    KnownError(
        r"FlashAttention2? .*(not installed|not available)|No module named 'flash_attn'",
        "flash-attn was asked for.",
        "It is CUDA code and does not exist for NPUs.",
        "Let the backend choose (attention_impl answers sdpa), and remove attn_implementation from the configuration.",
    ),
    KnownError(
        r"unsupported atten_mask shape|atten_?mask.*shape",
        "The attention kernel refused the shape of a mask.",
        "It does not repeat a mask along the queries.",
        "Expand the mask from (B, 1, 1, S) to (B, 1, Q, S).",
    ),
    KnownError(
        r"not support.*(DT_DOUBLE|DT_COMPLEX\d+|float64|complex)|(DT_DOUBLE|DT_COMPLEX\d+).*not support",
        "An operator got a number format that the NPU does not compute in.",
        "NPUs have no float64 and no complex arithmetic in most operators.",
        "Put tensors through backend.to_device, and write complex rotary embeddings in real numbers.",
    ),
)

ASCEND: Final = (*_IMPORT, *_HCCL, *_CODE, *_DEVICE)
