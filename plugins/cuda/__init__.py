"""The CUDA backend: NVIDIA GPUs, and AMD GPUs with a ROCm build of torch, which answers to the same device type."""
