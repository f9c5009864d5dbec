"""Vendors' messages as they come, wrapped as they come, and which line of the tables answers."""

from __future__ import annotations

import pytest

from vla_backend import activate
from vla_backend.explain import HOST, KnownError, explain
from vla_backend_ascend.errors_table import ASCEND
from vla_backend_cuda.errors_table import CUDA

TABLES = {"ascend": (*ASCEND, *HOST), "cuda": (*CUDA, *HOST), "cpu": HOST}

#: What torch_npu puts around a code of CANN or HCCL.
CALL = """create:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:89 HCCL function error: {call}, error code is {code}
[ERROR] 2026-11-02-10:31:07 (PID:4711, Device:{rank}, RankID:{rank}) ERR02200 DIST call hccl api failed.
{text}
        TraceBack (most recent call last):
        Transport init error. Reason: [Create][DestLink]Create Dest error! createLink para:rank[1]"""
NPU = """call:build/CMakeFiles/torch_npu.dir/compiler_depend.ts:152 NPU function error: {call}, error code is {code}
[ERROR] 2026-11-02-10:31:07 (PID:4711, Device:0, RankID:-1) ERR00100 PTA call acl api failed
[Error]: {text}
        Rectify the fault based on the error information in the ascend log.
EE9999: Inner Error!
        TraceBack (most recent call last):"""


def hccl(call: str, code: int, text: str) -> str:
    return CALL.format(call=call, code=code, text=text, rank=1)


def npu(call: str, code: int, text: str) -> str:
    return NPU.format(call=call, code=code, text=text)


ROOT_INFO = "HcclCommInitRootInfo(numRanks, &rootInfo, rank, &(comm->hcclComm_))"
MESSAGES = {
    "ascend": [
        (hccl(ROOT_INFO, 1, "EI0004: The ranktable is invalid, Reason:[The ranktable check is failed]."), "EI0004"),
        (hccl(ROOT_INFO, 4, "EI0006: Getting socket times out. Reason: 1. The remote does not initiate"), "EI0006"),
        (hccl("hcclAllReduce", 9, "EI0002: The wait execution of the Notify register times out."), "EI0002"),
        (hccl(ROOT_INFO, 7, "EJ0003: Failed to bind the IP port. Reason: The IP address and port"), "EJ0003"),
        ("EI0015: Receiving message from the root node timed out. Timeout was set to 120 seconds.", "EI0006"),
        ("EI0019: Failed to bind the IP port 60000 of the server node", "EJ0003"),
        ("EI0005: The arguments for collective communication are inconsistent between ranks: count", "EI0005"),
        ("EI0001: Environment variable [HCCL_CONNECT_TIMEOUT] is invalid. Reason: out of range", "EI0001"),
        ("EI0007: Failed to allocate resource [device memory] with info [size: 209715200]", "EI0007"),
        ("EI0008: The HCCL version of rank 3 is inconsistent with the others", "EI0008"),
        ("EI0009: Transport init error. Reason: createLink para:rank[1]", "EI0009"),
        ("EI0013: ROCE CQE error. remote ip 192.168.100.101", "EI0009"),
        (npu("c10_npu::SetDevice(device_id_)", 107001, "Invalid device ID."), "107001"),
        (npu("c10_npu::SetDevice(device_id_)", 507033, "Failed to start the device."), "507033"),
        (npu("aclrtMalloc", 207001, "EL0004: Failed to allocate memory. size 1073741824"), "EL0004"),
        ("NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; 57.3 GiB already", "EL0004"),
        (npu("AclrtSynchronizeStreamWithTimeout(stream)", 507035, "The vector core execution is abnormal."), "507015"),
        (npu("aclrtSynchronizeStream", 507018, "The aicpu execution is abnormal."), "507018"),
        (npu("aclrtSynchronizeStream", 107019, "Stream synchronization timed out"), "507018"),
        (npu("aclrtSynchronizeStream", 507054, "HBM MULTI BIT ECC error"), "507054"),
        (npu("aclrtSetDevice", 507899, "An internal error occurs in the Driver module."), "507899"),
        (npu("aclrtMemcpy", 107002, "The context is empty."), "107002"),
        (npu("at_npu::native::OpCommand", 500001, "Compile operator failed"), "operator-compiler"),
        ("EZ1001: Parameter dtype DT_DOUBLE of aclnnAdd is wrong, error code is 161002", "EZ1001"),
        ("EZ9999: Inner Error! The error from device(chipId:0), serial number is 7", "EZ9999"),
        ("aclnnIndex does not support DT_COMPLEX64", "float64-complex"),
        ("`max_split_size_mb` or `garbage_collection_threshold`, cannot be enabled with `expandable_segments`, please "
         "set `expandable_segments` to `False`.", "allocator-settings"),
        ("Failed to load the backend extension: torch_npu. You can disable extension auto-loading", "autoload"),
        ("/usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block", "static-tls"),
    ],
    "cuda": [
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.1 GiB", "out-of-memory"),
        ("CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronous", "device-assert"),
        ("CUDA error: no kernel image is available for execution on the device", "no-kernel-image"),
        ("CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported", "invisible-device"),
        ("NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, invalid usage, NCCL version 2.26.2\n"
         "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "shared-device"),
        ("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
         "Timeout(ms)=600000) ran for 600042 milliseconds before timing out.", "nccl-timeout"),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO)", "nccl-connect"),
        ("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.21.5", "nccl-error"),
        ("CUDA error: an illegal memory access was encountered", "kernel"),
        ("CUDA error: uncorrectable ECC error encountered", "kernel"),
        ("libcudnn.so.9: cannot open shared object file: No such file or directory", "cuda-library"),
    ],
    "cpu": [
        ("'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", "deepspeed-op"),
        ("CUDA_HOME does not exist, unable to compile CUDA op(s) MissingCUDAException", "deepspeed-op"),
        ("The checkpoint being loaded used a DP world size of 2 but the current world size is 1.", "zero-world-size"),
        ("Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *", "deepspeed-batch"),
        ("Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.", "loss-scale"),
        ("You are using an untested ZeRO Optimizer. Please add", "untested-optimizer"),
        ("{'id': 12, 'status': 'NOT_AVAILABLE', 'numel': 4096, 'ds_numel': 4096}", "zero3-not-gathered"),
        ("`--mixed_precision` arg cannot be set to `bf16` when `fp16` is set in the DeepSpeed", "precision-twice"),
        ("When using `deepspeed_config_file`, the following accelerate config variables will be ignored: "
         "['mixed_precision']", "precision-twice"),
        ("mixed_precision is set to 'bf16' in both accelerate config and DeepSpeed config", "precision-twice"),
        ("'weight' must be 2-D", "zero3-sharded-at-birth"),
        ("mat1 and mat2 must have the same dtype, but got BFloat16 and Float", "mixed-dtypes"),
        ("Expected all tensors to be on the same device, but found two devices, cpu and npu:0!", "mixed-devices"),
        ("Can't pickle local object 'build.<locals>.collate'", "unpicklable"),
        ("[unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete", "collective-timeout"),
        ("`np.float_` was removed in the NumPy 2.0 release. Use `np.float64` instead.", "numpy-2"),
        ("403 Client Error. Access to model nvidia/Cosmos-Reason2-2B is restricted", "hub-gated"),
        ("Unknown tag: fourier_gr1", "embodiment-tag"),
        ("local rank 8 has no device of its own: 8 visible of type 'npu'", "too-many-processes"),
        ("[Errno 24] Too many open files: '/dev/shm/torch_77'", "open-files"),
    ],
}  # fmt: skip


def line(backend: str, error: BaseException) -> str:
    """The name of the line that answers."""
    what = explain(error, TABLES[backend])
    assert activate(backend, check_available=False).translate_error(error) == what
    return next((known.name for known in TABLES[backend] if known.what == what.what and known.why == what.why), "")


CASES = [
    pytest.param(backend, text, name, id=f"{backend}-{name}")
    for backend in MESSAGES
    for text, name in MESSAGES[backend]
]


@pytest.mark.parametrize(("backend", "text", "name"), CASES)
def test_vendor_messages(backend, text, name) -> None:
    assert line(backend, RuntimeError(text)).split()[0] == name


@pytest.mark.parametrize(("backend", "text", "name"), CASES)
def test_wrapped_messages(backend, text, name) -> None:
    """Caught and raised anew twice, and reported by a data worker."""
    try:
        try:
            raise RuntimeError(text)
        except RuntimeError as error:
            raise ValueError("evaluation failed") from error
    except ValueError as error:
        middle = error
    outer = RuntimeError("Connection closed by peer")  # what the failing rank's neighbour, or its own clean-up, says
    outer.__context__ = middle
    assert line(backend, outer).split()[0] == name
    worker = f"Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n{text}"
    assert line(backend, RuntimeError(worker)).split()[0] == name


def raised(first: Exception, then: Exception, *, stated: bool) -> Exception:
    """`then`, raised while `first` was handled, or stated as its cause."""
    try:
        try:
            raise first
        except Exception as cause:
            if stated:
                raise then from cause
            raise then  # noqa: B904
    except Exception as error:
        return error


def test_the_root_cause_answers_not_the_echo() -> None:
    """Out of memory on a rank, whose clean-up then runs into the end of its peers."""
    full = RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB")
    echo = RuntimeError("EI0002: The wait execution of the Notify register times out")
    assert line("ascend", raised(full, echo, stated=False)) == "EL0004 out-of-memory"


def test_an_import_that_was_only_tried_is_no_cause() -> None:
    full = RuntimeError("NPU out of memory. Tried to allocate 2.00 GiB")
    missing = ModuleNotFoundError("No module named 'flash_attn'")
    assert line("ascend", raised(missing, full, stated=False)) == "EL0004 out-of-memory"
    assert line("ascend", raised(missing, RuntimeError("cannot build the model"), stated=True)) == "flash-attn"
    hidden = RuntimeError("cannot build the model")
    hidden.__context__, hidden.__suppress_context__ = ValueError("NPU out of memory"), True
    assert line("ascend", hidden) == ""


def test_an_error_without_words_is_told_by_its_place(tmp_path) -> None:
    """DeepSpeed's `defragment` raises a bare AssertionError."""
    path = tmp_path / "deepspeed" / "runtime" / "zero" / "utils.py"
    code = compile("def defragment():\n    assert False\n", str(path), "exec")
    space: dict = {}
    exec(code, space)
    with pytest.raises(AssertionError) as error:
        space["defragment"]()
    assert line("cpu", error.value) == "zero3-two-dtypes"
    assert line("cpu", AssertionError()) == ""


def test_notes_count_and_errors_that_cannot_be_printed_do_not_hurt() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert explain(Broken(), HOST).known is False
    noted = RuntimeError("step 7 failed")
    noted.__notes__ = ["[Errno 28] No space left on device"]
    assert line("cpu", noted) == "disk-full"


def test_a_table_of_an_older_plugin_still_works() -> None:
    """Four fields, as in the first version of the contract."""
    known = KnownError("E42", "The chip said 42.", "Nobody knows.", "Ask.")
    answer = explain(RuntimeError("error E42"), (known,))
    assert (answer.known, answer.what, answer.chinese) == (True, "The chip said 42.", "")
