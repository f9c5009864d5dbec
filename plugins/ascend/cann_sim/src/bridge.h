// Inner parts of the operator bridge: torch_npu's operators run with torch's CPU kernels on simulated device memory.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <string>
#include <utility>
#include <vector>

#include "sim.h"

namespace cann_sim {

constexpr auto NPU = c10::DeviceType::PrivateUse1;

inline bool is_npu(const at::Tensor& t) { return t.defined() && t.device().type() == NPU; }

// What is looked up once per operator instead of at every call.
struct Operator {
  std::string name;       // "mul.Tensor"
  int generator = -1;     // index of the argument
  int pin_memory = -1;
  bool random = false;
  bool mixed_ok = false;  // takes tensors of two devices
  bool attention = false;
  uint64_t watched = 0;  // bit per ScalarType: those that a reason speaks of
  struct Reason {
    uint64_t dtypes;
    bool refuse;  // or warn only
    std::string text;
  };
  std::vector<Reason> reasons;
  std::atomic<uint64_t> calls{0}, nanoseconds{0}, kernel_nanoseconds{0};
};

// The CPU views of one call's NPU tensors, and the way back from the kernel's results.
class Aliases {
 public:
  explicit Aliases(const Operator& op) : op_(op) {}
  c10::IValue to_cpu(const c10::IValue& value);
  at::Tensor to_cpu(const at::Tensor& tensor);
  c10::IValue to_npu(const c10::IValue& value);
  at::Tensor to_npu(const at::Tensor& tensor);
  void write_back();  // out= arguments that the kernel has resized
  void check_devices() const;
  c10::Device device();
  const at::Generator& generator() const { return generator_; }
  bool elsewhere() const { return elsewhere_; }

 private:
  struct Pair {
    at::Tensor cpu, npu;
  };
  const c10::Storage& storage_for(const at::Tensor& tensor);
  const Operator& op_;
  std::vector<Pair> pairs_;
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> storages_;  // NPU storage, CPU storage on the same memory
  c10::Device device_{NPU, -1};
  at::Generator generator_;
  bool cpu_seen_ = false, npu_seen_ = false;
  bool elsewhere_ = false;  // the call names another device for its result: zeros_like(tensor, device="meta")
};

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack);  // the boxed kernel
void check_dtype(const Operator& op, c10::ScalarType type);
void check_attention(const torch::jit::Stack& stack);  // arguments of scaled_dot_product_attention
void refuse(const std::string& rule);  // raises, or warns after set_warn_only(true)
void warn(const std::string& rule);    // once per rule
void set_warn_only(bool on);
void drain_task_queue();               // torch_npu's own work that is still queued
void gate(const char* what);           // sim_gate as a C++ exception

// Seeds torch's CPU generator for one call from the state of an NPU generator and moves that on.
uint64_t next_seed(at::Generator generator);
at::Generator default_generator(c10::Device device);

}  // namespace cann_sim
