"""What goes wrong beside any chip: the machine, files, data workers, and torch used in a way that some chip refuses."""

from __future__ import annotations

from typing import Final

from vla_backend.deepspeed_errors import DEEPSPEED
from vla_backend.known_error import KnownError

#: The machine and other processes.
_MACHINE: Final = (
    KnownError(
        r"DataLoader worker.*killed by signal: Bus error|unable to (open|mmap|resize) shared memory|/dev/shm.*No space",
        "A data worker ran out of shared memory.",
        "Workers hand batches over through /dev/shm, and a container's default of 64 MB is too small.",
        "Start the container with --shm-size=16g (or --ipc=host), or lower data.num_workers.",
        "数据加载进程的共享内存不足。批数据经 /dev/shm 传递，容器默认只有 64 MB。"
        "请用 --shm-size=16g（或 --ipc=host）启动容器，或减小 data.num_workers。",
        name="shared-memory",
    ),
    KnownError(
        r"DataLoader worker.*killed by signal: Killed|DefaultCPUAllocator: (can't|not enough)|^MemoryError",
        "The host ran out of memory.",
        "The processes of this job together hold more than the machine or the container has.",
        "Lower data.num_workers or data.batch_size, or raise the memory limit of the container.",
        "主机内存耗尽。本任务所有进程的内存之和超过了机器或容器的上限。"
        "请减小 data.num_workers 或 data.batch_size，或提高容器的内存上限。",
        name="host-memory",
    ),
    KnownError(
        r"EADDRINUSE|Address already in use",
        "A network port is taken.",
        "Another job on this machine, or a dead one that was not cleaned up, holds the rendezvous port.",
        "End the other job, or choose another MASTER_PORT.",
        "网络端口被占用。本机的另一个任务，或未清理干净的旧任务，占用了会合端口。请结束该任务，或换一个 MASTER_PORT。",
        name="port-taken",
    ),
    KnownError(
        r"Connection (closed|reset) by peer|Broken pipe",
        "Another process of the job has ended.",
        "This rank only noticed that the connection broke.",
        "Look for the first error in the logs of the other ranks.",
        "任务中的另一个进程已经退出，本进程只是发现连接断开。请在其他 rank 的日志里找最早的错误。",
        name="peer-gone",
    ),
    KnownError(
        # The last two are torch.save's, which forgets what the system said.
        r"No space left on device|Disk quota exceeded|"
        r"PytorchStreamWriter failed writing|inline_container.*unexpected pos",
        "The disk is full.",
        "A checkpoint or log could not be written completely.",
        "Free space in the folder of the run, or lower train.keep_checkpoints; the last complete checkpoint is intact.",
        "磁盘已满，检查点或日志没有写完整。请清理运行目录，或减小 train.keep_checkpoints；"
        "最近一个完整的检查点没有损坏。",
        name="disk-full",
    ),
    KnownError(
        r"Too many open files",
        "A process may open no more files.",
        "Videos, tables and tensors in shared memory each take one of `ulimit -n`.",
        "Run `ulimit -n 65536` in the shell that starts the job, or lower data.num_workers.",
        "进程打开的文件数达到上限(ulimit -n)。视频，表格和共享内存中的张量各占一个。"
        "请在启动任务的 shell 中执行 ulimit -n 65536，或减小 data.num_workers。",
        name="open-files",
    ),
    KnownError(
        r"Timed out waiting \d+ms for|Application timeout caused pair closure|wait timeout after \d+ ?ms|"
        r"Watchdog caught collective operation timeout",
        "A collective did not finish in time.",
        "One rank died, hangs, or does something else than the others, for instance gathers weights alone to save "
        "them; the ranks that wait report it.",
        "First look for the earliest error among all ranks; then whether one rank saves, evaluates or logs with a "
        "collective that the others do not enter (save with backend.save_sharded, which gathers nothing); raise "
        "parallel.dist_timeout only if a rank is merely slow.",
        "集合通信超时。某个 rank 已退出，卡住，或走了不同的流程（例如独自汇聚权重来保存），报错的是等待者。"
        "请先找所有 rank 中最早的错误；再看是否只有一个 rank 在保存，评测或写日志时调用了集合通信"
        "（请用 backend.save_sharded，它不汇聚）；确认只是慢，再提高 parallel.dist_timeout。",
        name="collective-timeout",
    ),
)

#: Code that some chip, or a fork, or numpy refuses.
_CODE: Final = (
    KnownError(
        r"has no device of its own|parallel\.processes.* sees \d+ device",
        "There are more processes than devices.",
        "Every rank needs a device of its own; ranks that wrap around would share one, and the collective library "
        "refuses that.",
        "Set parallel.processes to the number of visible devices at most; `vla backends` prints it.",
        "进程数多于设备数。每个 rank 需要自己的设备，绕回来共用一张卡会被集合通信库拒绝。"
        "请让 parallel.processes 不超过可见设备数，vla backends 会显示。",
        name="too-many-processes",
    ),
    KnownError(
        r"Cannot re-initialize (CUDA|NPU|XPU) in forked subprocess",
        "A forked child process used the device.",
        "The parent had initialised the device before it forked; a device context does not survive a fork.",
        "Let the backend choose how data workers start (do not force fork), and keep tensors on the CPU in workers.",
        "fork 出的子进程使用了设备。父进程在 fork 之前已初始化设备，设备上下文不能跨 fork 继承。"
        "请让后端决定数据进程的启动方式（不要强制 fork），数据进程里的张量留在 CPU 上。",
        name="forked-device",
    ),
    KnownError(
        r"Can't pickle|cannot pickle|Can't get local object|before the current process has finished its bootstrapping",
        "A data worker could not be started.",
        "Workers are started afresh, not forked, so dataset and collate function must be picklable and the main "
        "program must be importable.",
        "Define them at the top of a module instead of in a function or as a lambda, keep open files and locks out of "
        'the dataset, and put what starts the training under `if __name__ == "__main__":`.',
        "数据加载进程无法启动。数据进程是全新启动而非 fork，因此数据集与 collate 函数必须能被 pickle，"
        "主程序必须能被导入。"
        '请把它们定义在模块顶层，数据集中不要保存打开的文件和锁，启动训练的代码放在 if __name__ == "__main__"：之下。',
        name="unpicklable",
    ),
    KnownError(
        r"Got unsupported ScalarType (BFloat16|Float8\w*)",
        "A bfloat16 tensor was converted to numpy directly.",
        "numpy has no bfloat16.",
        "Use backend.to_numpy(tensor), which widens to float32 first.",
        "bfloat16 张量被直接转成 numpy，而 numpy 没有 bfloat16。请用 backend.to_numpy(tensor)，它会先转成 float32。",
        name="numpy-bfloat16",
    ),
    KnownError(
        r"Inference tensors cannot be saved for backward|tensor has no storage",
        "A tensor made under torch.inference_mode met training.",
        "ZeRO-3 keeps gathered weights; those made in inference mode cannot enter autograd any more.",
        "Evaluate inside `with backend.evaluating(model):`, which uses no_grad, and restart the process.",
        "torch.inference_mode 下产生的张量进入了训练。ZeRO-3 会保留收集到的权重，"
        "推理模式下产生的权重不能再参与自动求导。"
        "请在 with backend.evaluating(model)：中评测（它使用 no_grad），并重启进程。",
        name="inference-tensors",
    ),
    KnownError(
        r"No backend type associated with device type cpu",
        "A collective got a tensor that lies on the CPU.",
        "The library of this process group moves device memory only.",
        "Create the tensor on backend.collective_device.",
        "集合通信收到了 CPU 上的张量，而该进程组的通信库只传输设备内存。请把张量创建在 backend.collective_device 上。",
        name="cpu-collective",
    ),
    KnownError(
        r"Expected all tensors to be on the same device",
        "An operator got tensors on different devices.",
        "Part of the batch or of the model was not moved, or was created without naming a device.",
        "Move batches with backend.to_device, and create tensors on the device of an input: x.new_zeros(...), "
        "torch.zeros(..., device=x.device).",
        "算子的输入张量位于不同设备。批数据或模型的一部分没有搬到设备上，或创建张量时没有写明设备。"
        "请用 backend.to_device 搬运批数据，新张量创建在输入张量所在的设备上。",
        name="mixed-devices",
    ),
    KnownError(
        r"(mat1 and mat2|query, key, and value).*(must have|to have) the same dtype|"
        r"expected (scalar type|m1 and m2 to have the same dtype).*(Float|BFloat16|Half)",
        "Two number formats met in one operator.",
        "Leaving autocast does not convert what was computed in it: a float32 region that gets bfloat16 inputs fails.",
        "Enter `with backend.fp32_region():` and cast the inputs with .float(); layers of vla_train.nn follow their "
        "input's format.",
        "同一算子里出现了两种数值格式。退出 autocast 并不会转换已算出的张量，因此 float32 区域收到 bfloat16 "
        "输入就会失败。"
        "请进入 with backend.fp32_region()：并用 .float() 转换输入。",
        name="mixed-dtypes",
    ),
    KnownError(
        r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)",
        "Two tensors of different length met.",
        "At evaluation usually: actions or their mask have the length of the data's window, the prediction that of "
        "the action horizon. Otherwise a mistake in the shapes of the model.",
        "Compare model.action_head.action_horizon with the window of the data; training and evaluation both get chunks "
        "of the horizon when data comes through the model's own dataset.",
        "两个长度不同的张量相遇。评测时通常是动作或掩码为数据窗口的长度，而预测为 action_horizon 的长度；"
        "否则是模型形状有误。"
        "请比较 model.action_head.action_horizon 与数据窗口；经模型自带的数据集读取时，训练与评测得到同样长度的动作。",
        name="action-horizon",
    ),
)

#: Files, packages and names.
_FILES: Final = (
    KnownError(
        r"GatedRepoError|Access to model .* is restricted|is gated|403 Client Error.*huggingface|gated repo",
        "A model on the hub is gated.",
        "Its owner asks everybody to accept a licence first, and this machine's login has not.",
        "Accept it on the model's page, run `hf auth login`, or download the folder elsewhere and give its path: every "
        "setting that takes a hub id takes a local folder.",
        "hub 上的模型需要授权。其所有者要求先接受许可协议，而本机登录的账号尚未接受。请在模型页面接受协议并执行 hf "
        "auth login, "
        "或在别处下载后填写本地目录：凡是可写 hub 名称的地方都可写本地目录。",
        name="hub-gated",
    ),
    KnownError(
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to .*huggingface|"
        r"Max retries exceeded.*huggingface|Cannot reach .*huggingface",
        "The hub could not be reached.",
        "Compute nodes often have no way to the internet, and the files are not in the cache.",
        "Download the folder on a machine that has, copy it here and give its path instead of the hub id.",
        "无法访问 hub。计算节点往往不能上网，且文件不在缓存里。请在能上网的机器上下载后拷贝过来，用本地目录代替 hub "
        "名称。",
        name="hub-unreachable",
    ),
    KnownError(
        r"Unknown tag: |There is no embodiment tag|is not a valid EmbodimentTag",
        "There is no such embodiment tag.",
        "The tags differ between releases of the model; checkpoints and data of an earlier one keep old names.",
        "Use one of the tags that the message lists, or new_embodiment for a robot of your own.",
        "没有这个机器人(embodiment)标签。不同版本模型的标签不同，旧的检查点和数据仍用旧名。"
        "请改用报错中列出的标签；自己的机器人用 new_embodiment。",
        name="embodiment-tag",
    ),
    KnownError(
        r"CUDA not enabled\. Requested context GPU|DECORD.*(device_api|gpu)|Could not load libtorchcodec|"
        r"No module named 'decord'|does not support decoding on (cuda|gpu|npu)",
        "A video decoder is missing, or was asked for a device that it cannot use.",
        "decord exists for x86-64 only and its wheels decode on the CPU; torchcodec needs the FFmpeg libraries.",
        "Set data.decoder=auto (PyAV has wheels everywhere), and leave the device to backend.video_ctx.",
        "缺少视频解码器，或要求解码器使用它不支持的设备。decord 只有 x86-64 版本且只能用 CPU 解码，torchcodec 需要 "
        "FFmpeg 库。"
        "请设 data.decoder=auto（PyAV 各平台都有），解码设备由 backend.video_ctx 决定。",
        name="video-decoder",
    ),
    KnownError(
        r"was removed in the NumPy 2\.0|compiled using NumPy 1\.x cannot be run|"
        r"numpy\.core\.multiarray failed to import",
        "A package does not work with numpy 2.",
        "It was written or compiled for numpy 1.",
        "Upgrade the package that the traceback names, or pip install 'numpy<2'.",
        "某个软件包与 numpy 2 不兼容，它是为 numpy 1 编写或编译的。请升级报错中的软件包，或安装 numpy<2。",
        name="numpy-2",
    ),
    KnownError(
        r"SafetensorError.*(device .* is invalid|Could not (open|load) .*device)|^SafetensorError: .*device",
        "safetensors was given a device that it does not know.",
        "It has a list of its own of device names; a bare name also means the first device on every rank.",
        "Load weights on the CPU and move the model to backend.device.",
        "safetensors 不认识给定的设备名；不带编号的设备名还会让所有 rank 用第一张卡。请在 CPU 上加载权重，"
        "再把模型搬到 backend.device。",
        name="safetensors-device",
    ),
)

HOST: Final = (*DEEPSPEED, *_MACHINE, *_CODE, *_FILES)
