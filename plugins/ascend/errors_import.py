"""Failures while torch_npu, CANN and mx_driving are imported."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

SOURCE: Final = "source the set_env.sh of CANN in the shell that starts the job"
SOURCE_ZH: Final = "在启动任务的 shell 中 source CANN 的 set_env.sh"

IMPORT: Final = (
    KnownError(
        r"No module named 'torch_npu'",
        "torch_npu is not installed.",
        "torch reaches the NPU only through it.",
        "pip install the torch_npu of the same version as torch; `vla doctor --backend ascend` prints the command.",
        "没有安装 torch_npu, torch 只能通过它使用 NPU。"
        "请安装与 torch 版本相同的 torch_npu, vla doctor --backend ascend 会给出命令。",
        name="torch_npu-missing",
    ),
    KnownError(
        r"libascend_hal\.so",
        "The driver's libraries are missing.",
        "CANN talks to the NPU through libascend_hal.so, which the driver on the host brings.",
        "Mount the host's /usr/local/Ascend/driver into the container, or install the driver.",
        "缺少驱动库。CANN 通过 libascend_hal.so 访问 NPU，该库由主机上的驱动提供。"
        "请把主机的 /usr/local/Ascend/driver 挂载进容器，或安装驱动。",
        name="driver-library",
    ),
    KnownError(
        r"lib(c10|torch|torch_cpu|torch_python|torch_npu)\.so: cannot open shared object file",
        "A library of torch or torch_npu is not found.",
        "Something was loaded before torch or outside Python, and the linker does not search the wheels' lib folders.",
        "Start the job with `vla train --backend ascend`: it puts torch/lib and torch_npu/lib on LD_LIBRARY_PATH.",
        "找不到 torch 或 torch_npu 的动态库。有库在 torch 之前或在 Python 之外被加载，而链接器不会搜索 wheel 里的 "
        "lib 目录。"
        "请用 vla train --backend ascend 启动，它会把 torch/lib 和 torch_npu/lib 加入 LD_LIBRARY_PATH。",
        name="torch-library",
    ),
    KnownError(
        r"lib(ascendcl|hccl|ge_runner|graph|acl_op_compiler|runtime|opapi|msprofiler|nnopbase)\.so: cannot open shared",
        "A library of CANN is not found.",
        "CANN is not installed, or its environment is not set in this shell.",
        f"Install CANN, and {SOURCE}.",
        f"找不到 CANN 的动态库。CANN 未安装，或当前 shell 未设置其环境变量。请安装 CANN，并{SOURCE_ZH}。",
        name="cann-library",
    ),
    KnownError(
        r"undefined symbol|MsprofSysCycleTime",
        "Libraries of different versions met.",
        "torch and torch_npu must agree to the patch version, and torch_npu is made for one CANN release.",
        "Install the torch_npu of the same version as torch; then the CANN release that it names; mx_driving's "
        "compiled "
        "part and triton-ascend have a torch range of their own.",
        "版本不同的库碰到了一起。torch 与 torch_npu 必须连补丁号都一致，而每个 torch_npu 对应一个 CANN 版本。"
        "请先装与 torch 同版本的 torch_npu，再装它要求的 CANN; mx_driving 的编译部分和 triton-ascend 另有各自的 "
        "torch 范围。",
        name="version-set",
    ),
    KnownError(
        r"Two accelerators cannot be used at the same time in PyTorch: npu and npu",
        "torch_npu was imported a second time.",
        "The first import failed half-way and left the device registered; this message hides the first error.",
        "Look for the first import error in the log; nothing but the backend should import torch_npu or mx_driving.",
        "torch_npu 被导入了第二次。第一次导入中途失败，但设备已注册，这条信息掩盖了最初的错误。"
        "请在日志中找第一个导入错误；除后端外，任何代码都不应导入 torch_npu 或 mx_driving。",
        name="npu-twice",
    ),
    KnownError(
        r"Two accelerators cannot be used at the same time",
        "torch already uses another accelerator.",
        "This is a torch build for another chip, and the machine has one.",
        "Install the CPU build of the same torch version, or choose the backend of the other chip.",
        "torch 已在使用另一种加速器。当前 torch 是为其他芯片编译的，且本机有该芯片。"
        "请安装同版本的 CPU 版 torch，或选择那种芯片的后端。",
        name="other-accelerator",
    ),
    KnownError(
        r"Failed to load the backend extension: torch_npu",
        "torch could not load torch_npu by itself.",
        "torch imports it while torch itself is being imported, which hides the cause and can be circular.",
        "Start the job with `vla train --backend ascend`, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import torch_npu "
        "after torch: then the first error is shown.",
        "torch 自动加载 torch_npu 失败。它发生在导入 torch 的过程中，会掩盖原因，甚至形成循环导入。请用 vla train "
        "--backend ascend "
        "启动，或设 TORCH_DEVICE_BACKEND_AUTOLOAD=0 并在 torch 之后导入 torch_npu，这样就能看到最初的错误。",
        name="autoload",
    ),
    KnownError(
        r"ASCEND_(OPP|RUNTIME|COMPILER|HOME)_PATH",
        "CANN's environment is incomplete.",
        "torch_npu and DeepSpeed look for CANN through these variables.",
        f"{SOURCE[0].upper()}{SOURCE[1:]}.",
        f"CANN 的环境变量不完整，torch_npu 和 DeepSpeed 通过它们查找 CANN。请{SOURCE_ZH}。",
        name="cann-environment",
    ),
    KnownError(
        r"cannot allocate memory in static TLS block",
        "libgomp was loaded too late.",
        "On aarch64 the room for thread-local data is used up by libraries loaded before it.",
        "Start with LD_PRELOAD set to the libgomp named in the message.",
        "libgomp 加载得太晚。在 aarch64 上，线程局部数据的空间已被先加载的库用完。请把 LD_PRELOAD 设为报错中的 "
        "libgomp 再启动。",
        name="static-tls",
    ),
    KnownError(
        r"cannot import name '(TransformersNPU|DiffusersNPU|Patcher|default_patcher\w*)'|No module named 'mx_driving",
        "mx_driving has another interface than the code expects, or is missing.",
        "Its patcher moved and changed between releases, and wheels lack classes that the sources have.",
        "Do not import it yourself: the backend uses whichever interface is installed and reports what it applied.",
        "mx_driving 的接口与代码预期不同，或未安装。各版本的 patcher 位置和用法不同，发布的 wheel 还缺少源码中的类。"
        "请不要自行导入：后端会使用已安装版本的接口，并报告打了哪些补丁。",
        name="mx_driving-interface",
    ),
    KnownError(
        r"\b148049\b|\b500001\b|\b500002\b|tbe\.common|No module named '(tbe|te|decorator|scipy|attrs|attr|psutil)'",
        "CANN's operator compiler did not start.",
        "Its Python part is not on PYTHONPATH, lacks packages that CANN uses but does not declare, or meets a numpy "
        "that its release does not support.",
        f"{SOURCE[0].upper()}{SOURCE[1:]}; pip install attrs decorator psutil scipy; if CANN's log names "
        "numpy, also 'numpy<2'.",
        "CANN 的算子编译器没有启动。其 Python 部分不在 PYTHONPATH 上，或缺少 CANN 使用但未声明的软件包，或 numpy "
        "版本不受支持。"
        f"请{SOURCE_ZH}；安装 attrs decorator psutil scipy；若日志提到 numpy，再安装 numpy<2。",
        name="operator-compiler",
    ),
)
