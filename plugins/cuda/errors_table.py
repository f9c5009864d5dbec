"""What CUDA, NCCL and the driver say, and what it means."""

from __future__ import annotations

from typing import Final

from vla_backend.explain import KnownError

CUDA: Final = (
    KnownError(
        r"CUDA out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED",
        "A GPU ran out of memory.",
        "Model, gradients, optimizer state and activations of one rank exceed what is free on its GPU.",
        "Lower data.batch_size and raise train.gradient_accumulation_steps, use parallel.strategy=zero2 or zero3, and "
        "see with nvidia-smi whether another process holds memory.",
    ),
    KnownError(
        r"device-side assert triggered",
        "A kernel stopped at an assertion, usually an index out of range.",
        "Kernels run asynchronously, so the traceback shows a later line than the one at fault.",
        "Run again with CUDA_LAUNCH_BLOCKING=1, or on --backend cpu, where the error names the operation.",
    ),
    KnownError(
        r"no kernel image is available|sm_\d+ is not compatible with the current PyTorch",
        "This torch holds no kernels for this GPU.",
        "The GPU's compute capability is not among those that the installed build was compiled for.",
        "Install a torch build whose CUDA release supports the GPU.",
    ),
    KnownError(
        r"CUDA driver version is insufficient|driver on your system is too old|forward compatibility was attempted",
        "The driver is older than the CUDA release torch was built for.",
        "A driver runs programs of its own and earlier CUDA releases only.",
        "Update the driver, or install a torch build for an earlier CUDA release.",
    ),
    KnownError(
        r"Driver/library version mismatch",
        "The loaded driver and its libraries have different versions.",
        "The driver was updated without loading its new kernel module.",
        "Restart the machine, or reload the nvidia kernel modules.",
    ),
    KnownError(
        r"no CUDA-capable device is detected|No CUDA GPUs are available|invalid device ordinal",
        "The process asked for a GPU it cannot see.",
        "CUDA_VISIBLE_DEVICES hides it, the rank is higher than the number of GPUs, or a data worker decodes on a GPU.",
        "Compare parallel.processes with CUDA_VISIBLE_DEVICES; `vla backends` prints the number visible.",
    ),
    KnownError(
        r"Duplicate GPU detected",
        "Two ranks use the same GPU.",
        "There are more processes than visible GPUs, or every rank chose GPU 0.",
        "Lower parallel.processes to the number of visible GPUs.",
    ),
    KnownError(
        r"Watchdog caught collective operation timeout|NCCL.*(timed out|timeout)|ncclRemoteError",
        "A collective did not finish in time.",
        "One rank died, hangs, or does something else than the others; the ranks that wait report it.",
        "Look for the first error among all ranks; raise parallel.dist_timeout if a rank is only slow; "
        "NCCL_DEBUG=INFO shows the connections.",
    ),
    KnownError(
        r"ncclSystemError|NCCL WARN.*(socket|connect)|ncclInternalError",
        "NCCL could not set up its connections.",
        "The wrong network interface was chosen, /dev/shm is too small, or a firewall is in between.",
        "Set NCCL_SOCKET_IFNAME to the interface of the cluster, give the container more shared memory, "
        "and read the output with NCCL_DEBUG=INFO.",
    ),
    KnownError(
        r"ncclUnhandledCudaError|ncclInvalidUsage|NCCL error",
        "NCCL reported an error.",
        "The cause is usually an earlier CUDA error on this rank or a dead peer.",
        "Look for the first error among all ranks, and run with NCCL_DEBUG=INFO.",
    ),
    KnownError(
        r"uncorrectable ECC|ECC error|\bXid\b|unspecified launch failure|illegal memory access",
        "A kernel failed on the GPU.",
        "Either a kernel reads outside its memory, or the GPU has a hardware fault.",
        "Run again with CUDA_LAUNCH_BLOCKING=1; if it stays with one GPU, read `nvidia-smi -q -d ECC`.",
    ),
    KnownError(
        r"Torch not compiled with CUDA enabled",
        "The installed torch cannot use a GPU.",
        "It is a CPU build.",
        "Install the CUDA build of the same version, or use --backend cpu.",
    ),
    KnownError(
        r"lib(cudart|cublas|cudnn|nccl)[\w.-]*\.so[\w.]*: cannot open shared object file",
        "A library of CUDA is missing.",
        "The nvidia-* wheels of torch are incomplete, or another CUDA comes first on LD_LIBRARY_PATH.",
        "Reinstall torch with its dependencies, and start without a CUDA folder on LD_LIBRARY_PATH.",
    ),
    KnownError(
        r"flash_attn.*(undefined symbol|No module named)|No module named 'flash_attn'",
        "flash-attn is missing or was built for another torch.",
        "It is compiled for one torch release; the models here do not need it.",
        "Use the backend's own choice of attention (sdpa), or rebuild flash-attn for this torch.",
    ),
)
