// The one thing that differs between torch releases: getting at the kernel that an operator has for a dispatch key.
#pragma once
#include <torch/version.h>

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9
// There is no public way before 2.9. The standard headers come first, so that only torch's classes are opened.
#include <array>
#include <atomic>
#include <bitset>
#include <functional>
#include <iostream>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <variant>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/ivalue.h>
#define private public
#include <ATen/core/dispatch/OperatorEntry.h>
#include <ATen/core/dispatch/Dispatcher.h>
#undef private
namespace cann_sim {
using Kernel = c10::KernelFunction;
inline Kernel kernel_for(const c10::OperatorHandle& op, c10::DispatchKey key) { return op.operatorDef_->op.lookup(c10::DispatchKeySet(key)); }
}  // namespace cann_sim
#else
#include <ATen/core/dispatch/Dispatcher.h>
namespace cann_sim {
using Kernel = c10::SafeKernelFunction;
inline Kernel kernel_for(const c10::OperatorHandle& op, c10::DispatchKey key) { return op.getComputedKernelForDispatchKey(key); }
}  // namespace cann_sim
#endif

namespace cann_sim {
constexpr auto NPU_KEY = c10::DispatchKey::PrivateUse1;
}
