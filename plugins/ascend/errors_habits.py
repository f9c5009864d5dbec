"""Code and settings written for another chip."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

HABITS: Final = (
    KnownError(
        r"cannot pin '",
        "A tensor on the NPU was to be pinned.",
        "Only host memory can be pinned; something moved the batch to the NPU before the data loader pinned it.",
        "Keep the dataset and the collate function on the CPU; this backend answers pin_memory_ok=False.",
        "要锁页(pin)的张量在 NPU 上，而只有主机内存可以锁页。批数据在 DataLoader 锁页之前就被搬到了 NPU。"
        "请让数据集和 collate 函数留在 CPU 上；本后端的 pin_memory_ok 为 False。",
        name="pinned-npu-tensor",
    ),
    KnownError(
        r"'NoneType' object is not (subscriptable|iterable)[\s\S]*capability|get_device_capability|"
        r"cannot unpack non-iterable NoneType|'[<>]=?' not supported between instances of 'NoneType'",
        "Code asked for a CUDA compute capability.",
        "An NPU has none: torch_npu answers None.",
        "Ask the backend for what is needed (compute_dtype, attention_impl) instead of comparing numbers.",
        "代码查询了 CUDA 的计算能力(compute capability), NPU 没有这个概念，torch_npu 返回 None。"
        "请向后端询问真正需要的能力(compute_dtype, attention_impl)，不要比较版本号。",
        name="device-capability",
    ),
    KnownError(
        r"Torch not compiled with CUDA enabled|no CUDA-capable device is detected|No CUDA GPUs are available|"
        r"Found no NVIDIA driver|CUDA not enabled\. Requested context GPU",
        "Code asked for CUDA.",
        "A device was given as an integer or as 'cuda', or a decoder was asked for a GPU.",
        "Use backend.device and backend.video_ctx; never pass bare integers as devices.",
        "代码请求了 CUDA：用整数或 'cuda' 指定了设备，或让解码器使用 GPU。"
        "请使用 backend.device 与 backend.video_ctx，不要用裸整数作设备。",
        name="asked-for-cuda",
    ),
    KnownError(
        r"FlashAttention2? .*(not installed|not available)|No module named 'flash_attn'|flash_attn seems to be not",
        "flash-attn was asked for.",
        "It is CUDA code and does not exist for NPUs.",
        "Let the backend choose (attention_impl answers sdpa), and remove attn_implementation from the configuration.",
        "请求了 flash-attn，它是 CUDA 代码，NPU 上没有。请由后端选择（attention_impl 返回 sdpa），并从配置中删除 "
        "attn_implementation。",
        name="flash-attn",
    ),
    KnownError(
        r"unsupported atten_mask shape|atten_?mask.*shape",
        "The attention kernel refused the shape of a mask.",
        "It does not repeat a mask along the queries.",
        "Expand the mask from (B, 1, 1, S) to (B, 1, Q, S).",
        "注意力算子不接受该形状的掩码，它不会沿 query 方向广播。请把掩码从 (B, 1, 1, S) 扩展为 (B, 1, Q, S)。",
        name="mask-shape",
    ),
    KnownError(
        r"not support.*(DT_DOUBLE|DT_COMPLEX\d+|float64|complex)|(DT_DOUBLE|DT_COMPLEX\d+).*not support",
        "An operator got a number format that the NPU does not compute in.",
        "NPUs have no float64 and no complex arithmetic in most operators.",
        "Put tensors through backend.to_device, and write complex rotary embeddings in real numbers.",
        "算子收到了 NPU 不支持的数据类型，多数算子没有 float64 和复数。请用 backend.to_device 搬运张量，"
        "旋转位置编码用实数实现。",
        name="float64-complex",
    ),
    KnownError(
        r"max_split_size_mb.*cannot be enabled with .expandable_segments|expandable_segments.*(conflict|cannot)",
        "Two settings of the NPU's memory allocator exclude each other.",
        "PYTORCH_NPU_ALLOC_CONF holds expandable_segments:True and max_split_size_mb or garbage_collection_threshold.",
        "Unset PYTORCH_NPU_ALLOC_CONF (the launcher sets expandable_segments:True), or remove one of the two.",
        "NPU 内存分配器的两个设置互相冲突：PYTORCH_NPU_ALLOC_CONF 同时含有 expandable_segments:True 与 "
        "max_split_size_mb "
        "或 garbage_collection_threshold。请取消该变量（启动器会设 expandable_segments:True），或删除其一。",
        name="allocator-settings",
    ),
    KnownError(
        r"adamw?_torch_npu_fused|NpuFusedAdamW?\b.*(not|error)",
        "A fused optimizer of torch_npu was asked for by name.",
        "Its name differs between libraries, and its state lies in merged tensors that no other backend can read.",
        "Set train.optimizer.name=AdamW: backend.fused_optimizer picks the fast path with portable state.",
        "按名称请求了 torch_npu 的融合优化器。各库的名称不同，其状态存放在合并的张量里，其他后端无法读取。"
        "请设 train.optimizer.name=AdamW, backend.fused_optimizer 会选择状态可移植的快速实现。",
        name="fused-optimizer",
    ),
)
