// The boxed kernel behind torch_npu's operators, and its registration. Python reaches it as torch.ops.cann_sim.*.
#include "dispatch_compat.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "bridge.h"

namespace cann_sim {
namespace {

std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Operator>> operators;  // read-only after install
std::vector<std::unique_ptr<torch::Library>> libraries;
std::optional<Kernel> own_copy;
bool timing = false, draining = false;

void* torch_npu_symbol(const char* name) {
  static void* library = dlopen("libtorch_npu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, name) : nullptr;
}

uint64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void drain_task_queue() {
  if (!draining) return;
  static auto synchronize = reinterpret_cast<bool (*)(bool)>(torch_npu_symbol("_ZN7c10_npu25npuSynchronizeUsedDevicesEb"));
  if (synchronize) synchronize(true);
}

void gate(const char* what) {
  int code = sim_gate(SIM_OPERATOR, what);
  TORCH_CHECK(code == ACL_OK, what, " failed, error code is ", code, "\n", sim_error_text());
}

at::Generator default_generator(c10::Device device) {
  using Getter = const at::Generator& (*)(c10::DeviceIndex);
  static auto getter = reinterpret_cast<Getter>(torch_npu_symbol("_ZN6at_npu6detail22getDefaultNPUGeneratorEa"));
  return getter ? getter(device.index()) : at::globalContext().defaultGenerator(device);
}

uint64_t next_seed(at::Generator generator) {
  std::lock_guard<std::mutex> guard(generator.mutex());
  uint64_t offset = generator.get_offset();
  generator.set_offset(offset + 4);  // the offset advances in fours, as Philox's does
  uint64_t x = generator.current_seed() * 0x9E3779B97F4A7C15ull + offset + 0x7F4A7C15ull;
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ x >> 27;
}

namespace {

void call_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // Below autograd and autocast: those have had their turn with the NPU's keys.
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

void call_random_kernel(const c10::OperatorHandle& op, const Operator& info, Aliases& aliases, torch::jit::Stack* stack) {
  uint64_t seed = next_seed(aliases.generator().defined() ? aliases.generator() : default_generator(aliases.device()));
  if (info.generator >= 0) {
    (*stack)[info.generator] = at::detail::createCPUGenerator(seed);
    return call_kernel(op, stack);
  }
  at::Generator host = at::detail::getDefaultCPUGenerator();
  at::Tensor saved;
  {
    std::lock_guard<std::mutex> guard(host.mutex());
    saved = host.get_state();
    host.set_current_seed(seed);
  }
  auto restore = [&] {
    std::lock_guard<std::mutex> guard(host.mutex());
    host.set_state(saved);
  };
  try {
    call_kernel(op, stack);
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

// torch_npu's own autograd kernels call NPU-only backwards; upstream's derivative formulas take their place.
void upstream_autograd(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op.schema().name() == "aten::scaled_dot_product_attention") check_attention(*stack);
  kernel_for(op, c10::DispatchKey::AutogradCPU).callBoxed(op, keys, stack);
}

void not_simulated(const c10::OperatorHandle& op, torch::jit::Stack*) {
  const auto& name = op.schema().operator_name();
  TORCH_CHECK_NOT_IMPLEMENTED(false, "simulated CANN: the operator ", name.name, name.overload_name.empty() ? "" : ".", name.overload_name,
                              " is not simulated. Add its meaning to vla_backend_ascend/cann_sim/npu_operators.py.");
}

at::Tensor& copy_(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  bool plain = self.dtype() == source.dtype() && self.sizes() == source.sizes() && self.is_contiguous() && source.is_contiguous() &&
               !source.is_conj() && !source.is_neg();
  if (is_npu(self) != is_npu(source) && plain && own_copy) {
    static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    torch::jit::Stack stack{self, source, non_blocking};
    own_copy->callBoxed(op, keys, &stack);  // torch_npu's transfer between host and device
    return self;
  }
  gate("copy_");
  drain_task_queue();
  static const Operator info{"copy_"};
  Aliases to(info), from(info);  // two: a copy between two devices is fine
  at::Tensor out = to.to_cpu(self), in = from.to_cpu(source);
  at::AutoDispatchBelowADInplaceOrView below;
  out.copy_(in);
  return self;
}

}  // namespace

void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Operator& info = *operators.at(&op.schema());
  uint64_t start = timing ? nanoseconds() : 0;
  gate(info.name.c_str());
  drain_task_queue();
  if (info.attention) check_attention(*stack);
  size_t n = op.schema().arguments().size();
  Aliases aliases(info);
  torch::jit::Stack arguments;
  arguments.reserve(n + 2);
  for (size_t i = stack->size() - n; i < stack->size(); i++) arguments.push_back(aliases.to_cpu((*stack)[i]));
  if (info.pin_memory >= 0 && !aliases.elsewhere()) arguments[info.pin_memory] = c10::IValue();
  aliases.check_devices();
  uint64_t kernel_start = timing ? nanoseconds() : 0;
  if (info.random) {
    call_random_kernel(op, info, aliases, &arguments);
  } else {
    call_kernel(op, &arguments);
  }
  uint64_t kernel_end = timing ? nanoseconds() : 0;
  aliases.write_back();
  torch::jit::drop(*stack, n);
  for (auto& value : arguments) stack->push_back(aliases.to_npu(value));
  info.calls++;
  if (timing) {
    info.kernel_nanoseconds += kernel_end - kernel_start;
    info.nanoseconds += nanoseconds() - start;
  }
}

namespace {

std::unique_ptr<Operator> describe(const c10::OperatorHandle& op, const std::string& name, bool mixed_ok) {
  auto info = std::make_unique<Operator>();
  info->name = name;
  info->attention = name == "scaled_dot_product_attention";
  info->mixed_ok = mixed_ok;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    if (arguments[i].name() == "generator") info->generator = static_cast<int>(i);
    if (arguments[i].name() == "pin_memory") info->pin_memory = static_cast<int>(i);
  }
  info->random = info->generator >= 0 || op.hasTag(at::Tag::nondeterministic_seeded);
  return info;
}

c10::OperatorHandle find(const std::string& full_name) {
  auto dot = full_name.find('.');
  std::string overload = dot == std::string::npos ? "" : full_name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(full_name.substr(0, dot).c_str(), overload.c_str());
}

torch::Library& library(const char* space, c10::DispatchKey key) {
  libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__));
  return *libraries.back();
}

// `bridged`: aten names that run on CPU kernels; `autograd`: those whose autograd kernel is replaced; `mixed`: those of
// `bridged` that take tensors of two devices; `unknown`: "npu::name" or "aten::name", which shall fail by name.
void install(std::vector<std::string> bridged, std::vector<std::string> autograd, std::vector<std::string> mixed,
             std::vector<std::string> unknown, bool warn, bool drain) {
  set_warn_only(warn);
  draining = drain;
  own_copy.emplace(kernel_for(find("aten::copy_"), NPU_KEY));
  std::set<std::string> mixed_ok(mixed.begin(), mixed.end());
  torch::Library& aten = library("aten", NPU_KEY);
  for (const auto& name : bridged) {
    auto op = find("aten::" + name);
    operators.emplace(&op.schema(), describe(op, name, mixed_ok.count(name) > 0));
    aten.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
  aten.impl("copy_", TORCH_FN(copy_));
  torch::Library& gradients = library("aten", c10::DispatchKey::AutogradPrivateUse1);
  for (const auto& name : autograd) gradients.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&upstream_autograd>());
  for (const auto& full : unknown) {
    auto colon = full.find("::");
    torch::Library& space = library(full.substr(0, colon).c_str(), NPU_KEY);
    space.impl(full.substr(colon + 2).c_str(), torch::CppFunction::makeFromBoxedFunction<&not_simulated>());
  }
}

void add_rule(const std::string& name, int64_t dtypes, bool refuse, const std::string& text) {
  auto found = operators.find(&find("aten::" + name).schema());
  if (found == operators.end()) return;  // this torch_npu has no such operator
  found->second->watched |= static_cast<uint64_t>(dtypes);
  found->second->reasons.push_back({static_cast<uint64_t>(dtypes), refuse, text});
}

void set_timing(bool on) { timing = on; }

// "name calls nanoseconds kernel_nanoseconds" for every operator that has run
std::vector<std::string> statistics() {
  std::vector<std::string> lines;
  for (const auto& [schema, op] : operators) {
    if (!op->calls) continue;
    lines.push_back(op->name + " " + std::to_string(op->calls) + " " + std::to_string(op->nanoseconds) + " " + std::to_string(op->kernel_nanoseconds));
  }
  return lines;
}

// The host's view of a device tensor, for operators whose meaning is written in Python.
at::Tensor host_view(const at::Tensor& tensor) {
  TORCH_CHECK(is_npu(tensor), "Expected NPU tensor, please check whether the input tensor device is correct.");
  gate("host_view");
  drain_task_queue();
  static const Operator info{"host_view"};
  return Aliases(info).to_cpu(tensor);
}

TORCH_LIBRARY(cann_sim, m) {
  m.def("install(str[] bridged, str[] autograd, str[] mixed, str[] unknown, bool warn, bool drain) -> ()", &install);
  m.def("add_rule(str name, int dtypes, bool refuse, str text) -> ()",
        [](std::string name, int64_t dtypes, bool refuse, std::string text) { add_rule(name, dtypes, refuse, text); });
  m.def("refuse(str rule) -> ()", [](std::string rule) { refuse(rule); });
  m.def("timing(bool on) -> ()", &set_timing);
  m.def("statistics() -> str[]", &statistics);
  m.def("step() -> ()", [] { sim_step(); });
}

TORCH_LIBRARY_FRAGMENT(cann_sim, m) { m.def("host_view(Tensor tensor) -> Tensor"); }
TORCH_LIBRARY_IMPL(cann_sim, PrivateUse1, m) { m.impl("host_view", TORCH_FN(host_view)); }

}  // namespace
}  // namespace cann_sim
