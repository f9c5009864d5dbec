"""Failures between processes. HCCL's codes begin with EI, those of its network process with EJ."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError

_FIRST: Final = "First look for the earliest error among the logs of all ranks"
_FIRST_ZH: Final = "请先在所有 rank 的日志中找最早的错误"


def _words(pattern: str) -> str:
    """`pattern` where no code says it better: torch_npu puts the name of the call, and hints, around every code."""
    return rf"\A(?![\s\S]*\bE[IJ](?!9999)\d{{4}})[\s\S]*?(?:{pattern})"


HCCL: Final = (
    KnownError(
        r"EI0004|EI0014|EI0016|EI0017|"
        + _words(r"assigned to (the )?same device|hcom init failed|hcclCommInitRootInfo"),
        "HCCL could not set up its communicator.",
        "Usually two ranks share one NPU because there are more processes than visible NPUs; or the ranks see "
        "different devices, or a rank table does not describe them.",
        "Set parallel.processes to the number of visible NPUs at most; compare ASCEND_RT_VISIBLE_DEVICES of all ranks; "
        "unset RANK_TABLE_FILE, which is not needed here.",
        "HCCL 无法建立通信域。通常是进程数多于可见 NPU，两个 rank 用了同一张卡；或各 rank 看到的设备不同，或 rank "
        "table 不符。"
        "请让 parallel.processes 不超过可见 NPU 数；比较各 rank 的 ASCEND_RT_VISIBLE_DEVICES；"
        "取消 RANK_TABLE_FILE（这里不需要）。",
        name="EI0004 shared-device",
    ),
    KnownError(
        r"EI0006|EI0015|" + _words(r"HCCL_CONNECT_TIMEOUT|get (connected status )?socket time ?out"),
        "Ranks did not meet in time.",
        "Another rank has not reached the first collective (still loading, or dead), or the network between the NPUs "
        "is down.",
        f"{_FIRST}; then whether all ranks started and see the same MASTER_ADDR; then the links with hccn_tool and the "
        "firewall; raise parallel.dist_timeout if a rank is only slow.",
        "各 rank 未能按时建立连接。另一个 rank 还没到第一次集合通信（仍在加载，或已退出），或 NPU 之间的网络不通。"
        f"{_FIRST_ZH}; "
        "再确认所有 rank 都已启动且 MASTER_ADDR 相同；再用 hccn_tool 检查链路和防火墙；若只是慢，提高 "
        "parallel.dist_timeout。",
        name="EI0006 connect-timeout",
    ),
    KnownError(
        r"EI0002|" + _words(r"HCCL_EXEC_TIMEOUT|hccl.*time ?out|notify wait.*time ?out"),
        "A collective did not finish in time.",
        "One rank died, hangs, is much slower, or runs other collectives than the rest; the ranks that wait report it.",
        f"{_FIRST}; then whether one rank alone saves, evaluates or compiles; raise parallel.dist_timeout if a rank is "
        "only slow; lower reduce_bucket_size and allgather_bucket_size (1e8) on a busy network.",
        f"集合通信超时。某个 rank 已退出，卡住，慢得多，或执行了不同的集合通信，报错的是等待者。{_FIRST_ZH}；"
        "再看是否只有一个 rank 在保存，评测或编译；若只是慢，提高 parallel.dist_timeout；"
        "网络繁忙时把 reduce_bucket_size 与 allgather_bucket_size 降到 1e8。",
        name="EI0002 collective-timeout",
    ),
    KnownError(
        r"EJ0003|EI0019|EI0020|" + _words(r"bind.*port.*(fail|already)"),
        "A port that HCCL wants is taken.",
        "Another job, or a connection that got a number from 60000 on, holds it.",
        "Unset HCCL_IF_BASE_PORT so that the launcher finds a free block, or end the other job.",
        "HCCL 需要的端口被占用：另一个任务，或恰好分到 60000 以上端口的连接。"
        "请取消 HCCL_IF_BASE_PORT，启动器会自动寻找空闲端口段；或结束那个任务。",
        name="EJ0003 hccl-port",
    ),
    KnownError(
        r"EI0005",
        "The ranks disagree about a collective.",
        "They called different ones, or with other shapes, number formats or roots: usually a branch that only some "
        "ranks take.",
        "See which collective the message names and which rank took the other branch; uneven last batches and "
        "rank-0-only code are the usual places.",
        "各 rank 的集合通信不一致：调用了不同的通信，或形状，数据类型，root 不同，通常是只有部分 rank 走了某个分支。"
        "请看报错中的通信名称，找出走了不同分支的 rank；常见于不齐的最后一批和只在 rank 0 执行的代码。",
        name="EI0005 ranks-disagree",
    ),
    KnownError(
        r"EI0001|EI0003|EJ0004",
        "HCCL got an invalid setting or argument.",
        "An HCCL_* variable is wrong, an address does not belong to this host, or a collective got a number format "
        "that "
        "HCCL does not have.",
        "See the name in the message; unset the HCCL_* variables that the launcher sets itself, and compare the rest "
        "among all ranks.",
        "HCCL 的某个设置或参数无效：HCCL_* 变量有误，地址不属于本机，或集合通信用了 HCCL 不支持的数据类型。"
        "请看报错中的名称；取消启动器会自行设置的 HCCL_* 变量，并比较各 rank 的其余变量。",
        name="EI0001 hccl-setting",
    ),
    KnownError(
        r"EI0007|EI0011",
        "HCCL could not get memory or another resource.",
        "Its buffers (HCCL_BUFFSIZE, 200 MB per communicator) come on top of what training takes on the NPU.",
        "Free memory on the NPU first (smaller data.batch_size, zero2 or zero3), then lower HCCL_BUFFSIZE.",
        "HCCL 申请不到内存或其他资源。每个通信域的缓冲区（HCCL_BUFFSIZE，默认 200 MB）要在训练占用之外另算。"
        "请先腾出 NPU 内存（减小 data.batch_size，用 zero2 或 zero3），再减小 HCCL_BUFFSIZE。",
        name="EI0007 hccl-resource",
    ),
    KnownError(
        r"EI0008",
        "The ranks have different versions of HCCL.",
        "CANN differs between the machines or containers.",
        "Install the same CANN everywhere; `vla backends` prints the version on each machine.",
        "各 rank 的 HCCL 版本不同，即机器或容器之间的 CANN 版本不一致。请在所有机器上安装相同的 CANN, vla backends "
        "会显示版本。",
        name="EI0008 hccl-version",
    ),
    KnownError(
        r"EI0009|EI0010|EI0012|EI0013|EI0018|EJ0001|EJ0002|" + _words(r"SDMA|ROCE CQE"),
        "The link between two NPUs failed.",
        "The other rank has ended, or a cable, port, TLS setting or RDMA address is wrong or down.",
        f"{_FIRST}, also on the NPU that the message names as the other end; then `hccn_tool -i N -link -g`, -ip -g "
        "and "
        "-tls -g for each NPU; then dmesg for PCIe errors.",
        f"两个 NPU 之间的链路出错：对端 rank 已退出，或网线，端口，TLS 设置，RDMA 地址有误。{_FIRST_ZH}，"
        "包括报错中的对端 NPU；"
        "再对每个 NPU 执行 hccn_tool -i N -link -g, -ip -g 和 -tls -g；最后用 dmesg 查 PCIe 错误。",
        name="EI0009 hccl-link",
    ),
    KnownError(
        r"call hccl api failed|HCCL function error",
        "A call of HCCL failed.",
        "The code of the cause (EI..., EJ...) stands in CANN's own log.",
        f"{_FIRST}; then grep ERROR in ~/ascend/log/debug/plog of the rank that failed first.",
        f"HCCL 调用失败，具体原因的代码(EI..., EJ...)在 CANN 自己的日志里。{_FIRST_ZH}；"
        "再在最先失败的 rank 的 ~/ascend/log/debug/plog 中查找 ERROR。",
        name="ERR02200 hccl-call",
    ),
)
