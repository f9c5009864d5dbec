"""What CUDA, NCCL and the driver say, and what it means."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

CUDA: Final = (
    KnownError(
        r"CUDA out of memory|OutOfMemoryError|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED",
        "A GPU ran out of memory.",
        "Model, gradients, optimizer state and activations of one rank exceed what is free on its GPU.",
        "Lower data.batch_size and raise train.gradient_accumulation_steps, use parallel.strategy=zero2 or zero3, and "
        "see with nvidia-smi whether another process holds memory.",
        "GPU 显存耗尽。一个 rank 的模型，梯度，优化器状态与激活之和超过了该 GPU 的空闲显存。请减小 data.batch_size "
        "并增大 train.gradient_accumulation_steps；使用 parallel.strategy=zero2 或 zero3；用 nvidia-smi "
        "看是否有其他进程占用。",
        name="out-of-memory",
    ),
    KnownError(
        r"device-side assert triggered",
        "A kernel stopped at an assertion, usually an index out of range.",
        "Kernels run asynchronously, so the traceback shows a later line than the one at fault.",
        "Run again with CUDA_LAUNCH_BLOCKING=1, or on --backend cpu, where the error names the operation.",
        "算子内的断言失败，通常是索引越界。算子异步执行，堆栈指向的是后面的代码。请设 CUDA_LAUNCH_BLOCKING=1 重跑，"
        "或用 --backend cpu，那里的报错会指出操作。",
        name="device-assert",
    ),
    KnownError(
        r"no kernel image is available|sm_\d+ is not compatible with the current PyTorch",
        "This torch holds no kernels for this GPU.",
        "The GPU's compute capability is not among those that the installed build was compiled for.",
        "Install a torch build whose CUDA release supports the GPU.",
        "当前 torch 不含该 GPU 的算子：编译时没有包含它的计算能力。请安装 CUDA 版本支持该 GPU 的 torch。",
        name="no-kernel-image",
    ),
    KnownError(
        r"CUDA driver version is insufficient|driver on your system is too old|forward compatibility was attempted",
        "The driver is older than the CUDA release torch was built for.",
        "A driver runs programs of its own and earlier CUDA releases only.",
        "Update the driver, or install a torch build for an earlier CUDA release.",
        "驱动比 torch 所用的 CUDA 版本旧。请升级驱动，或安装基于更早 CUDA 版本的 torch。",
        name="driver-too-old",
    ),
    KnownError(
        r"Driver/library version mismatch",
        "The loaded driver and its libraries have different versions.",
        "The driver was updated without loading its new kernel module.",
        "Restart the machine, or reload the nvidia kernel modules.",
        "已加载的驱动与其库版本不同：升级驱动后没有加载新的内核模块。请重启机器，或重新加载 nvidia 内核模块。",
        name="driver-mismatch",
    ),
    KnownError(
        r"no CUDA-capable device is detected|No CUDA GPUs are available|invalid device ordinal|"
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        "The process asked for a GPU it cannot see.",
        "CUDA_VISIBLE_DEVICES hides it, the rank is higher than the number of GPUs, or a data worker decodes on a GPU.",
        "Compare parallel.processes with CUDA_VISIBLE_DEVICES; `vla backends` prints the number visible.",
        "进程请求了不可见的 GPU：被 CUDA_VISIBLE_DEVICES 隐藏，rank 超过 GPU 数，或数据进程在 GPU 上解码。请比较 "
        "parallel.processes 与 CUDA_VISIBLE_DEVICES, vla backends 会显示可见数量。",
        name="invisible-device",
    ),
    KnownError(
        r"Duplicate GPU detected",
        "Two ranks use the same GPU.",
        "There are more processes than visible GPUs, or every rank chose GPU 0.",
        "Lower parallel.processes to the number of visible GPUs.",
        "两个 rank 用了同一张 GPU：进程数多于可见 GPU，或所有 rank 都选了 GPU 0。请让 parallel.processes 不超过可见 "
        "GPU 数。",
        name="shared-device",
    ),
    KnownError(
        r"Watchdog caught collective operation timeout|NCCL.*(timed out|timeout)|ncclRemoteError",
        "A collective did not finish in time.",
        "One rank died, hangs, or does something else than the others; the ranks that wait report it.",
        "Look for the first error among all ranks; raise parallel.dist_timeout if a rank is only slow; "
        "NCCL_DEBUG=INFO shows the connections.",
        "集合通信超时。某个 rank 已退出，卡住，或走了不同的流程，报错的是等待者。请先找所有 rank 中最早的错误；"
        "若只是慢，提高 parallel.dist_timeout; NCCL_DEBUG=INFO 会显示连接情况。",
        name="nccl-timeout",
    ),
    KnownError(
        r"ncclSystemError|NCCL WARN.*(socket|connect)|ncclInternalError|unhandled system error",
        "NCCL could not set up its connections.",
        "The wrong network interface was chosen, /dev/shm is too small, or a firewall is in between.",
        "Set NCCL_SOCKET_IFNAME to the interface of the cluster, give the container more shared memory, "
        "and read the output with NCCL_DEBUG=INFO.",
        "NCCL 无法建立连接：选错了网卡，/dev/shm 太小，或有防火墙。请把 NCCL_SOCKET_IFNAME 设为集群网卡，"
        "增大容器的共享内存，并用 NCCL_DEBUG=INFO 查看输出。",
        name="nccl-connect",
    ),
    KnownError(
        r"ncclUnhandledCudaError|ncclInvalidUsage|ncclInvalidArgument|NCCL error|unhandled cuda error",
        "NCCL reported an error.",
        "The cause is usually an earlier CUDA error on this rank or a dead peer.",
        "Look for the first error among all ranks, and run with NCCL_DEBUG=INFO.",
        "NCCL 报错，原因通常是本 rank 更早的 CUDA 错误，或对端已退出。请找所有 rank 中最早的错误，并用 NCCL_DEBUG=INFO "
        "重跑。",
        name="nccl-error",
    ),
    KnownError(
        r"uncorrectable ECC|ECC error|\bXid\b|unspecified launch failure|illegal memory access|misaligned address|"
        r"CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED|launch timed out",
        "A kernel failed on the GPU.",
        "Either a kernel reads outside its memory, or the GPU has a hardware fault.",
        "Run again with CUDA_LAUNCH_BLOCKING=1; if it stays with one GPU, read `nvidia-smi -q -d ECC`.",
        "GPU 上的算子执行失败：算子越界访问，或 GPU 硬件故障。请设 CUDA_LAUNCH_BLOCKING=1 重跑；若总在同一张 GPU "
        "上出现，查看 nvidia-smi -q -d ECC。",
        name="kernel",
    ),
    KnownError(
        r"Torch not compiled with CUDA enabled",
        "The installed torch cannot use a GPU.",
        "It is a CPU build.",
        "Install the CUDA build of the same version, or use --backend cpu.",
        "当前 torch 是 CPU 版，不能使用 GPU。请安装同版本的 CUDA 版，或用 --backend cpu。",
        name="cpu-build",
    ),
    KnownError(
        r"lib(cudart|cublas|cudnn|nccl)[\w.-]*\.so[\w.]*: cannot open shared object file",
        "A library of CUDA is missing.",
        "The nvidia-* wheels of torch are incomplete, or another CUDA comes first on LD_LIBRARY_PATH.",
        "Reinstall torch with its dependencies, and start without a CUDA folder on LD_LIBRARY_PATH.",
        "缺少 CUDA 的库：torch 的 nvidia-* 包不完整，或 LD_LIBRARY_PATH 中另一个 CUDA 排在前面。请重装 torch 及其依赖，"
        "并从 LD_LIBRARY_PATH 中去掉 CUDA 目录。",
        name="cuda-library",
    ),
    KnownError(
        r"flash_attn.*(undefined symbol|No module named)|No module named 'flash_attn'",
        "flash-attn is missing or was built for another torch.",
        "It is compiled for one torch release; the models here do not need it.",
        "Use the backend's own choice of attention (sdpa), or rebuild flash-attn for this torch.",
        "缺少 flash-attn，或它是为其他 torch 版本编译的；这里的模型不需要它。请使用后端自选的注意力实现(sdpa)，"
        "或针对当前 torch 重新编译。",
        name="cuda-flash-attn",
    ),
)
