"""Failures on the device, by number as AscendCL returns them and by the codes of driver (EL), runtime (EE) and
operators (EZ)."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

_FIRST: Final = "Look for the first error among the logs of all ranks"
_FIRST_ZH: Final = "请在所有 rank 的日志中找最早的错误"

DEVICE: Final = (
    KnownError(
        r"NPU out of memory|OutOfMemoryError|EL0004|\b207018\b|\b207001\b|Failed to allocate memory|"
        r"memory on the device is exhausted",
        "An NPU ran out of memory.",
        "Model, gradients, optimizer state and activations of one rank exceed what is free on its NPU.",
        "See with npu-smi info whether another process holds memory; keep frozen encoders on the host "
        "(text_encoder_on_host); lower data.batch_size and raise train.gradient_accumulation_steps; use "
        "parallel.strategy=zero2 or zero3.",
        "NPU 内存耗尽。一个 rank 的模型，梯度，优化器状态与激活之和超过了该 NPU 的空闲内存。请先用 npu-smi info "
        "看是否有其他进程"
        "占用；把冻结的编码器留在主机(text_encoder_on_host)；减小 data.batch_size 并增大 "
        "train.gradient_accumulation_steps；"
        "使用 parallel.strategy=zero2 或 zero3。",
        name="EL0004 out-of-memory",
    ),
    KnownError(
        r"\b107001\b|EL0002|invalid device id|invalid device ordinal",
        "A process asked for an NPU it cannot see.",
        "The rank is higher than the number of visible NPUs, or a physical number was used: they count from 0 within "
        "ASCEND_RT_VISIBLE_DEVICES.",
        "Set parallel.processes to the number of visible NPUs at most; `vla backends` prints it.",
        "进程请求了不可见的 NPU。rank 超过了可见 NPU 数，或用了物理编号：编号在 ASCEND_RT_VISIBLE_DEVICES 之内从 0 "
        "数起。"
        "请让 parallel.processes 不超过可见 NPU 数，vla backends 会显示。",
        name="107001 invisible-device",
    ),
    KnownError(
        r"\b107002\b|EE1010|context is empty|context is null",
        "A thread used the NPU without having chosen one.",
        "The choice of a device holds for one thread, and is lost after a fork.",
        "Call backend.local_device(local_rank) in the process, and keep NPU tensors out of data workers.",
        "线程没有选定设备就使用了 NPU。设备选择只对一个线程有效，fork 之后会丢失。"
        "请在进程中调用 backend.local_device(local_rank)，数据进程中不要使用 NPU 张量。",
        name="107002 no-context",
    ),
    KnownError(
        r"\b507033\b|EL0001|Failed to start the device|EL0007",
        "The NPU could not be opened.",
        "Another container or virtual machine holds it, it is in a fault state, this user may not open it, or CANN "
        "does "
        "not fit the driver.",
        "First npu-smi info for health and processes; then the group HwHiAiUser for this user; then the driver's "
        "version "
        "against what CANN asks for; reset the card if it is idle.",
        "NPU 无法打开。它被其他容器或虚拟机占用，处于故障状态，当前用户没有权限，或 CANN 与驱动不匹配。"
        "请先用 npu-smi info 查看健康状态和进程；再把用户加入 HwHiAiUser 组；再核对驱动版本与 CANN 的要求；"
        "空闲的卡可以复位。",
        name="507033 device-start",
    ),
    KnownError(
        r"UCE ERROR|uncorrectable|\b507010\b|\b507013\b|\b507053\b|\b507054\b|HBM MULTI BIT ECC",
        "The NPU has a hardware fault.",
        "Its memory or its task scheduler reports an error that cannot be corrected.",
        "Take the card out of ASCEND_RT_VISIBLE_DEVICES and resume from the last checkpoint; see npu-smi info -t ecc.",
        "NPU 硬件故障：内存或任务调度器报告了无法纠正的错误。请把该卡移出 ASCEND_RT_VISIBLE_DEVICES，"
        "从最近的检查点继续；"
        "用 npu-smi info -t ecc 查看。",
        name="507054 hardware-fault",
    ),
    KnownError(
        r"\b507899\b|\b507901\b|EL0005|EL0006|EL0012|driver module|HDC session|\(HDC\) session is disconnected",
        "The driver failed.",
        "The connection to the NPU broke: after a reset, by a driver older than CANN needs, or by a hardware fault; or "
        "its queues are full.",
        "Look at npu-smi info and dmesg; compare the driver with what the CANN release asks for; restart the driver.",
        "驱动出错。与 NPU 的连接中断：设备被复位，驱动比 CANN 要求的旧，硬件故障，或其队列已满。"
        "请查看 npu-smi info 和 dmesg；核对驱动与 CANN 版本；重启驱动。",
        name="507899 driver",
    ),
    KnownError(
        r"\b507015\b|\b507035\b|\b507042\b|aicore exception|vector core exception|AI ?Core.*abnormal|"
        r"(aicore|vector core) execution is abnormal|ai[vc]\w* error exception",
        "A kernel failed on the NPU.",
        "Usually an index out of range or an operator's bug with this shape; launches are asynchronous, so the "
        "traceback shows a later line.",
        "Run again with ASCEND_LAUNCH_BLOCKING=1, which names the operator, or on --backend cpu.",
        "NPU 上的算子执行失败，通常是索引越界，或算子在该形状下有缺陷；下发是异步的，因此堆栈指向的是后面的代码。"
        "请设 ASCEND_LAUNCH_BLOCKING=1 重跑以得到算子名，或用 --backend cpu。",
        name="507015 kernel",
    ),
    KnownError(
        r"\b507014\b|\b507017\b|\b507018\b|\b507034\b|\b507046\b|\b507048\b|\b107019\b|\b107020\b|EE1002|"
        r"aicpu (exception|timeout|execution (is abnormal|times out))",
        "Work on the NPU did not finish, or failed on its scalar processor.",
        "An operator on the AI CPU is slow or failed, or a collective before it waits for another rank.",
        f"{_FIRST}; run with ASCEND_LAUNCH_BLOCKING=1 to see the operator.",
        "NPU 上的任务没有完成，或在 AI CPU 上失败。某个 AI CPU 算子很慢或出错，或它之前的集合通信在等待其他 rank。"
        f"{_FIRST_ZH}; "
        "设 ASCEND_LAUNCH_BLOCKING=1 查看是哪个算子。",
        name="507018 stream",
    ),
    KnownError(
        r"EZ0007|EZ0501|EZ3002|EZ3003|EZ9010|\b16100[12]\b|EZ1001|EZ000[1-6]",
        "An operator refused its inputs.",
        "This CANN has no implementation for this shape, number format or attribute.",
        "See the operator and the input in the message; put batches through backend.to_device (no float64); compare "
        "with "
        "--backend cpu; a newer CANN may have it.",
        "算子不接受其输入：当前 CANN 没有该形状，数据类型或属性的实现。请看报错中的算子和输入；用 backend.to_device "
        "搬运批数据"
        "（不要 float64）；用 --backend cpu 对照；更新的 CANN 可能支持。",
        name="EZ1001 operator-input",
    ),
    KnownError(
        r"E[EZHL]9999|EE1001|call acl api failed|NPU function error",
        "A call of CANN failed.",
        "This is CANN's code for an inner error; the cause stands in the lines below it and in CANN's own log.",
        f"{_FIRST}; read the lines after the code from the bottom up; grep ERROR in ~/ascend/log/debug/plog; run with "
        "ASCEND_LAUNCH_BLOCKING=1.",
        f"CANN 调用失败，这是内部错误的总代码，具体原因在其后的几行和 CANN 自己的日志里。{_FIRST_ZH}；"
        "自下而上阅读代码之后的几行；"
        "在 ~/ascend/log/debug/plog 中查找 ERROR；设 ASCEND_LAUNCH_BLOCKING=1 重跑。",
        name="EZ9999 inner-error",
    ),
)
