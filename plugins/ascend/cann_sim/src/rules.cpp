// Refusals: what a 910B would not run. The rules themselves are in rules.py.
#include <mutex>
#include <set>

#include "bridge.h"

namespace cann_sim {

static bool warn_only = false;

void set_warn_only(bool on) { warn_only = on; }

void warn(const std::string& rule) {
  static std::mutex lock;
  static std::set<std::string> told;
  std::lock_guard<std::mutex> guard(lock);
  if (told.insert(rule).second) TORCH_WARN("simulated CANN: a 910B may refuse: ", rule);
}

void refuse(const std::string& rule) {
  TORCH_CHECK(warn_only, "simulated CANN refuses: ", rule, " (--rules warn only warns)");
  warn(rule);
}

void check_dtype(const Operator& op, c10::ScalarType type) {
  if (!(op.watched >> static_cast<int>(type) & 1)) return;
  for (const auto& reason : op.reasons) {
    if (!(reason.dtypes >> static_cast<int>(type) & 1)) continue;
    (reason.refuse ? refuse : warn)(op.name + " on " + c10::toString(type) + ": " + reason.text);
  }
}

// scaled_dot_product_attention(query, key, value, attn_mask, ...) reaches the fused kernel for these dtypes and a bool
// mask; other masks take torch's own composition, which broadcasts.
void check_attention(const torch::jit::Stack& stack) {
  size_t first = stack.size() - 8;  // query key value attn_mask dropout_p is_causal scale enable_gqa
  const auto& mask = stack[first + 3];
  if (!mask.isTensor() || !mask.toTensor().defined() || mask.toTensor().scalar_type() != at::kBool) return;
  const at::Tensor &query = stack[first].toTensor(), &key = stack[first + 1].toTensor(), &m = mask.toTensor();
  auto type = query.scalar_type();
  if (query.dim() != 4 || key.dim() != 4 || (type != at::kFloat && type != at::kHalf && type != at::kBFloat16)) return;
  int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2), keys = key.size(2);
  bool fits = false;
  if (m.dim() == 2) fits = m.size(0) == queries && m.size(1) == keys;
  if (m.dim() == 4 && m.size(2) == queries && m.size(3) == keys) {
    fits = (m.size(0) == batch && (m.size(1) == heads || m.size(1) == 1)) || (m.size(0) == 1 && m.size(1) == 1);
  }
  if (fits) return;
  std::ostringstream text;
  text << "scaled_dot_product_attention: unsupported atten_mask shape " << m.sizes() << " for (B,N,S,T) = (" << batch << "," << heads << ","
       << queries << "," << keys << "); expand it to (B,1,S,T) [mask-shape]";
  refuse(text.str());
}

}  // namespace cann_sim
