// CPU views of NPU tensors. Device memory of the simulation is host memory, so a view needs no copy.
#include <ATen/EmptyTensor.h>

#include "bridge.h"

namespace cann_sim {

const c10::Storage& Aliases::storage_for(const at::Tensor& tensor) {
  auto* npu = tensor.storage().unsafeGetStorageImpl();
  for (auto& [known, cpu] : storages_) {
    if (known == npu) return cpu;
  }
  c10::Storage cpu(c10::Storage::use_byte_size_t(), npu->nbytes(), at::DataPtr(npu->mutable_data(), c10::kCPU),
                   c10::GetAllocator(c10::kCPU), /*resizable=*/true);
  storages_.emplace_back(npu, std::move(cpu));
  return storages_.back().second;
}

at::Tensor Aliases::to_cpu(const at::Tensor& t) {
  if (!is_npu(t)) {
    if (t.defined() && t.device().is_cpu() && t.dim() > 0) cpu_seen_ = true;
    return t;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(t.has_storage() && t.layout() == c10::kStrided, "simulated CANN: ", op_.name, ": only strided tensors are simulated");
  npu_seen_ = true;
  if (!device_.has_index()) device_ = t.device();
  TORCH_CHECK(device_ == t.device(), "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ", t.device(), "!");
  check_dtype(op_, t.scalar_type());
  auto cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage_for(t)), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  auto* impl = cpu.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) cpu._set_conj(true);
  if (t.is_neg()) cpu._set_neg(true);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  pairs_.push_back({cpu, t});
  return cpu;
}

c10::IValue Aliases::to_cpu(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() ? c10::IValue(to_cpu(v.toTensor())) : v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(to_cpu(t));
    return out;
  }
  if (v.isOptionalTensorList()) {  // the indices of index and index_put may be on the host
    bool before = cpu_seen_;
    c10::List<std::optional<at::Tensor>> out;
    for (const auto& t : v.toOptionalTensorVector()) out.push_back(t && t->defined() ? std::optional(to_cpu(*t)) : t);
    cpu_seen_ = before;
    return out;
  }
  if (v.isDevice() && v.toDevice().type() == NPU) {
    device_ = v.toDevice();
    npu_seen_ = true;
    return c10::Device(c10::kCPU);
  }
  if (v.isDevice()) elsewhere_ = true;
  if (v.isGenerator() && v.toGenerator().defined()) {
    generator_ = v.toGenerator();
    return c10::IValue();
  }
  return v;
}

c10::Device Aliases::device() {
  if (!device_.has_index()) device_ = c10::Device(NPU, c10::impl::getDeviceGuardImpl(NPU)->getDevice().index());
  return device_;
}

void Aliases::check_devices() const {
  TORCH_CHECK(!(cpu_seen_ && npu_seen_) || op_.mixed_ok,
              "Expected all tensors to be on the same device. Expected NPU tensor, please check whether the input tensor device is correct. (",
              op_.name, ")");
  TORCH_CHECK(!generator_.defined() || generator_.device().type() == NPU, "Expected a 'npu' device type for generator but found '",
              generator_.device().type(), "'");
}

at::Tensor Aliases::to_npu(const at::Tensor& result) {
  if (!result.defined() || is_npu(result)) return result;
  for (auto& pair : pairs_) {
    if (pair.cpu.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return pair.npu;
  }
  if (elsewhere_ || result.layout() != c10::kStrided || !result.device().is_cpu()) return result;
  auto* storage = result.storage().unsafeGetStorageImpl();
  for (auto& [npu, cpu] : storages_) {
    if (cpu.unsafeGetStorageImpl() != storage) continue;
    for (auto& pair : pairs_) {  // a view of an input
      if (pair.npu.storage().unsafeGetStorageImpl() == npu) return pair.npu.as_strided(result.sizes(), result.strides(), result.storage_offset());
    }
  }
  at::Tensor out = at::empty_strided(result.sizes(), result.strides(), result.options().device(device()).pinned_memory(false));
  if (result.numel()) {
    memcpy(out.mutable_data_ptr(), result.const_data_ptr(), at::detail::computeStorageNbytes(result.sizes(), result.strides(), result.itemsize()));
  }
  if (result.unsafeGetTensorImpl()->is_wrapped_number()) out.unsafeGetTensorImpl()->set_wrapped_number(true);
  return out;
}

c10::IValue Aliases::to_npu(const c10::IValue& v) {
  if (v.isTensor()) return to_npu(v.toTensor());
  if (v.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(to_npu(t));
    return out;
  }
  return v;
}

void Aliases::write_back() {
  for (auto& [cpu, npu] : pairs_) {
    bool moved = cpu.storage().unsafeGetStorageImpl()->data() != npu.storage().unsafeGetStorageImpl()->data();
    if (!moved && cpu.sizes() == npu.sizes() && cpu.strides() == npu.strides()) continue;
    npu.resize_(cpu.sizes());
    if (npu.strides() != cpu.strides()) npu.as_strided_(cpu.sizes(), cpu.strides(), 0);
    if (moved && cpu.numel()) {
      memcpy(npu.mutable_data_ptr(), cpu.const_data_ptr(), at::detail::computeStorageNbytes(cpu.sizes(), cpu.strides(), cpu.itemsize()));
    }
  }
}

}  // namespace cann_sim
