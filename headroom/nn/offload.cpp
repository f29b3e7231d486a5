#include "headroom/nn/offload.h"

#include <string>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/memory/saved_storage.h"

namespace headroom::nn {

Offload::Offload(std::vector<at::Tensor> stays, const OffloadOptions& options)
    : stays_(std::move(stays)) {
  if (options.ahead < 0)
    throw UsageError(
        expectation("Offload", "ahead of 0 or more storages", std::to_string(options.ahead)));
  if (options.smallest.count < 0 || (options.budget && options.budget->count < 0))
    throw UsageError(expectation("Offload", "sizes of 0 bytes or more", "a negative one"));
  saved_ = std::make_shared<memory::SavedStorages>(options);
}

libtorch::SavedTensorScope Offload::scope() {
  saved_->stay(stays_);
  return libtorch::SavedTensorScope([saved = saved_](const at::Tensor& tensor) {
    libtorch::Unpack unpack = saved->pack(tensor, [](std::int64_t, Bytes) { return true; });
    return unpack ? unpack : memory::hand_on(tensor);
  });
}

OffloadUse Offload::use() const {
  return saved_->use();
}

}  // namespace headroom::nn
