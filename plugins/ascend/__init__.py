"""The Ascend backend: Huawei NPUs through CANN and torch_npu."""
