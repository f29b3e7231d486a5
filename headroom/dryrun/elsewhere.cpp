#include "headroom/dryrun/elsewhere.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/libtorch/tensors_in.h"

namespace headroom::dryrun {
namespace {

constexpr std::size_t kMostNamed = 5;

// The description of a tensor; tensors with equal text count as one.
struct Met {
  std::string text;
  bool named = false, trained = false;
  std::int64_t bytes = 0;
};

// Records the tensors that operators use while it is alive, on any thread.
class TensorLog {
 public:
  explicit TensorLog(const Subject& subject) {
    for (const auto& [name, tensor] : subject.parameters) name_of(tensor, name);
    for (const auto& [name, tensor] : subject.buffers) name_of(tensor, name);
    current = this;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&see).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~TensorLog() {
    at::removeCallback(handle_);
    const std::lock_guard lock(mutex);
    current = nullptr;
  }
  TensorLog(const TensorLog&) = delete;
  TensorLog& operator=(const TensorLog&) = delete;

  // Sorted: named tensors first, then trained ones, then by size.
  [[nodiscard]] std::vector<std::string> most_telling() {
    const std::lock_guard lock(mutex);
    std::stable_sort(met_.begin(), met_.end(), [](const Met& one, const Met& other) {
      return std::tuple(!one.named, !one.trained, -one.bytes) <
             std::tuple(!other.named, !other.trained, -other.bytes);
    });
    std::vector<std::string> texts;
    for (const Met& one : met_)
      if (texts.size() < kMostNamed) texts.push_back(one.text);
    return texts;
  }

 private:
  static std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& call) {
    const std::lock_guard lock(mutex);
    if (current != nullptr)
      for (const c10::IValue& argument : call.inputs())
        libtorch::for_each_tensor(argument, [](const at::Tensor& one) { current->meet(one); });
    return nullptr;
  }

  void name_of(const at::Tensor& tensor, const std::string& name) {
    if (tensor.defined()) names_.emplace(tensor.unsafeGetTensorImpl(), name);
  }

  void meet(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.dim() == 0) return;  // scalars may come from any device
    const auto name = names_.find(tensor.unsafeGetTensorImpl());
    std::ostringstream text;
    if (name != names_.end()) text << name->second << ' ';
    text << tensor.sizes() << " on " << tensor.device();
    const bool known = std::any_of(met_.begin(), met_.end(),
                                   [&](const Met& one) { return one.text == text.str(); });
    if (known) return;
    met_.push_back({.text = text.str(),
                    .named = name != names_.end(),
                    .trained = tensor.requires_grad() && tensor.is_leaf(),
                    .bytes = static_cast<std::int64_t>(tensor.nbytes())});
  }

  static inline std::mutex mutex;  // guards the members below
  static inline TensorLog* current = nullptr;
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
  std::vector<Met> met_;
  at::CallbackHandle handle_ = 0;
};

}  // namespace

void refuse_step_elsewhere(const char* function, const sim::Card& card, const Subject& subject) {
  TensorLog log(subject);
  subject.step();
  const std::vector<std::string> met = log.most_telling();
  throw UsageError(
      expectation(function, "a step that uses memory of " + card.device().str(),
                  met.empty() ? "one that runs no operator on a tensor"
                              : "one that uses none, but " + join(met, ", "),
                  "making model and batch on that device, or moving them there with to()"));
}

}  // namespace headroom::dryrun
