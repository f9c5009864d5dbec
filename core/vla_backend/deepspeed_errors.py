"""What DeepSpeed and accelerate say, and what it means."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

DEEPSPEED: Final = (
    KnownError(
        r"zero/utils\.py:defragment|expected scalar type BFloat16 but found Float[\s\S]*defragment",
        "ZeRO-3 got trained parameters of two number formats.",
        "It packs all parameters it manages into one buffer of one format; usually the transformer is stored in "
        "bfloat16 and the head, the VAE or the text encoder in float32.",
        "Keep frozen networks out of the model given to DeepSpeed (model.detach_frozen) and store trained ones in one "
        "format; do not cast the VAE to bfloat16, it changes the colours.",
        "ZeRO-3 管理的参数出现了两种数值格式。它把所有参数放进同一种格式的一块缓冲区，常见的是主干存为 bfloat16，"
        "而动作头，VAE 或文本编码器为 float32。请把冻结的网络移出交给 DeepSpeed 的模型(model.detach_frozen)，"
        "可训练部分统一格式；不要把 VAE 转成 bfloat16，会偏色。",
        name="zero3-two-dtypes",
    ),
    KnownError(
        r"'weight' must be 2-D",
        "A network was built with its weights already sharded by ZeRO-3.",
        "transformers shards every model it loads while a DeepSpeed ZeRO-3 configuration is registered, also those "
        "that ZeRO does not manage later.",
        "Build the model before DeepSpeed is set up, without transformers.integrations.HfDeepSpeedConfig.",
        "网络在创建时权重就被 ZeRO-3 切分了。只要注册了 ZeRO-3 配置，transformers 加载任何模型都会切分，包括之后不归 "
        "ZeRO 管的。"
        "请先建模型再初始化 DeepSpeed，不要使用 HfDeepSpeedConfig。",
        name="zero3-sharded-at-birth",
    ),
    KnownError(
        r"'status': '(NOT_AVAILABLE|INFLIGHT)'|still have inflight params",
        "A parameter was used that ZeRO-3 had not gathered.",
        "Weights are gathered when the module that owns them is called, on all ranks in the same order: reading "
        "module.weight from outside, or branches that differ between ranks, break that.",
        "Call the module instead of reading its weight, make all ranks take the same branch, or use zero2.",
        "使用了 ZeRO-3 尚未收集的参数。权重只在其所属模块被调用时收集，且各 rank 顺序必须一致；"
        "从外部读取 module.weight，或各 rank 走不同分支都会出错。请调用模块本身，让各 rank 走相同分支，或改用 zero2。",
        name="zero3-not-gathered",
    ),
    KnownError(
        r"specified in both .*accelerate.*DeepSpeed|is set to '?(bf16|fp16)'? in both|"
        r"mixed_precision` arg cannot be set to|DeepSpeed config values that mismatch|"
        r"accelerate config variables will be ignored|one setting has two owners|ACCELERATE_MIXED_PRECISION says|"
        r"but parallel\.mixed_precision is",
        "Precision, or another setting, is given twice.",
        "accelerate's configuration and DeepSpeed's both contain it; where they differ one of them loses in silence.",
        "Keep it in one place: here parallel.mixed_precision alone decides, so remove bf16 and fp16 from the DeepSpeed "
        "settings and from accelerate's file.",
        "精度（或其他设置）声明了两次。accelerate 与 DeepSpeed 的配置里都有，不一致时其中一个会被悄悄忽略。"
        "请只保留一处：这里由 parallel.mixed_precision 决定，请从 DeepSpeed 设置和 accelerate 配置中删除 bf16 与 "
        "fp16。",
        name="precision-twice",
    ),
    KnownError(
        r"ds_opt_adam|Unable to JIT load the \w+ op|MissingCUDAException|Error building extension|"
        r"Ninja is required to load",
        "An operator of DeepSpeed could not be compiled.",
        "Some are built at first use and need a compiler, ninja and the headers of the chip's toolkit; a failed build "
        "can surface as a missing attribute ds_opt_adam much later.",
        "Read the compiler's first error above; delete the folder torch_extensions in the cache if a build was "
        "interrupted; without offload to the CPU none of them is needed here.",
        "DeepSpeed 的某个算子编译失败。部分算子在首次使用时编译，需要编译器，ninja 和芯片工具包的头文件；"
        "失败后可能很晚才表现为缺少 "
        "ds_opt_adam。请看上方编译器的第一个错误；若编译被中断过，删除缓存中的 torch_extensions；不使用 CPU offload "
        "时不需要这些算子。",
        name="deepspeed-op",
    ),
    KnownError(
        r"DP world size of \d+|world size of \d+ but the\s+current world size is|Automatic adjustment.*world size",
        "A ZeRO checkpoint was written by another number of processes.",
        "DeepSpeed's files hold one share per process.",
        "Continue with `vla train`, which reads the shares of any number of processes; DeepSpeed's own loading needs "
        "as many as wrote it (`vla checkpoint inspect` tells).",
        "ZeRO 检查点由不同数量的进程写成，每个进程一份。请用 vla train 继续训练，它能读取任意进程数的分片；"
        "DeepSpeed 自身的加载要求进程数与写入时相同（vla checkpoint inspect 会显示）。",
        name="zero-world-size",
    ),
    KnownError(
        r"Check batch related parameters|train_batch_size is not equal",
        "The batch sizes in the DeepSpeed settings do not agree.",
        "train_batch_size must be batch per device x accumulation x processes.",
        "Remove the three from the DeepSpeed settings; data.batch_size and train.gradient_accumulation_steps decide.",
        "DeepSpeed 设置中的批大小互相矛盾：train_batch_size 必须等于 每卡批大小 x 梯度累积 x 进程数。"
        "请从 DeepSpeed 设置中删除这三项，由 data.batch_size 与 train.gradient_accumulation_steps 决定。",
        name="deepspeed-batch",
    ),
    KnownError(
        r"Current loss scale already at minimum",
        "Training in float16 diverged.",
        "Every step overflowed until the loss scale could shrink no further.",
        "Use parallel.mixed_precision=bf16, which needs no loss scale; else lower the learning rate and look at the "
        "batch for values that are not finite.",
        "float16 训练发散：每一步都溢出，损失缩放已降到最小。请改用 parallel.mixed_precision=bf16（不需要损失缩放）；"
        "否则降低学习率，并检查批数据中是否有非有限值。",
        name="loss-scale",
    ),
    KnownError(
        r"untested ZeRO Optimizer",
        "DeepSpeed refuses an optimizer that it does not know.",
        "It has a list; others must be allowed.",
        "Set zero_allow_untested_optimizer=true in the DeepSpeed settings, as the engine's own settings do.",
        "DeepSpeed 拒绝了它不认识的优化器。请在 DeepSpeed 设置中加 "
        "zero_allow_untested_optimizer=true（本项目默认已加）。",
        name="untested-optimizer",
    ),
)
