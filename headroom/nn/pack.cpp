#include "headroom/nn/pack.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/nn/detail/saved_storage.h"

namespace headroom::nn {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;

// ---- Eight bits ----

constexpr std::int64_t kRow = 256;       // numbers with one scale
constexpr std::int64_t kRows = 1 << 14;  // rounded together: temporaries of 16 MiB

// Some rows of a storage. The last row of all may be shorter.
struct Rows {
  [[nodiscard]] Tensor numbers(const Tensor& all) const {
    return all.slice(0, from, from + count * length).view({count, length});
  }
  [[nodiscard]] Tensor scales(const Tensor& all) const {
    return all.slice(0, from / kRow, from / kRow + count).view({count, 1});
  }
  std::int64_t from = 0, count = 0, length = 0;
};

std::vector<Rows> rows_of(std::int64_t numbers) {
  std::vector<Rows> all;
  const std::int64_t whole = numbers / kRow;
  for (std::int64_t row = 0; row < whole; row += kRows)
    all.push_back({row * kRow, std::min(kRows, whole - row), kRow});
  if (numbers % kRow != 0) all.push_back({whole * kRow, 1, numbers % kRow});
  return all;
}

struct Int8 {
  Tensor numbers, scales;
};

Int8 to_int8(const Tensor& flat) {
  const std::int64_t count = flat.numel();
  const Int8 made{at::empty({count}, flat.options().dtype(at::kChar)),
                  at::empty({(count + kRow - 1) / kRow}, flat.options().dtype(at::kFloat))};
  for (const Rows& rows : rows_of(count)) {
    const Tensor exact = rows.numbers(flat), scales = rows.scales(made.scales);
    scales.copy_(at::linalg_vector_norm(exact, std::numeric_limits<double>::infinity(), {1}, true));
    scales.div_(127).clamp_min_(std::numeric_limits<float>::min());  // rows of zeros
    rows.numbers(made.numbers).copy_(exact.div(scales).round_());
  }
  return made;
}

Tensor from_int8(const Int8& packed, at::ScalarType type) {
  Tensor flat = packed.numbers.to(type);
  for (const Rows& rows : rows_of(flat.numel()))
    rows.numbers(flat).mul_(rows.scales(packed.scales));
  return flat;
}

// ---- Storages ----

class Packed {
 public:
  Packed(const Tensor& tensor, PackTo to)
      : content(tensor), type_(tensor.scalar_type()), device_(tensor.device()) {
    const Tensor flat = detail::whole_storage(tensor, type_);
    if (to == PackTo::bf16) {
      kept_.emplace_back(flat.to(at::kBFloat16), /*is_output=*/false);
      return;
    }
    const Int8 made = to_int8(flat);
    kept_.emplace_back(made.numbers, false);
    kept_.emplace_back(made.scales, false);
  }

  // A tensor with the storage. Nodes that need it at the same time share it, unless they run on
  // different streams, which would have to wait for each other.
  Tensor unpacked() {
    const std::lock_guard lock(mutex_);
    const c10::Stream stream = detail::current_stream(device_);
    if (last_ && last_->stream == stream)
      if (auto storage = last_->storage.lock())
        return at::empty({0}, at::TensorOptions(device_).dtype(type_))
            .set_(c10::Storage(std::move(storage)));
    const Tensor flat = kept_.size() == 1
                            ? kept_[0].unpack().to(type_)
                            : from_int8({kept_[0].unpack(), kept_[1].unpack()}, type_);
    last_ = {stream, flat.storage().getWeakStorageImpl()};
    return flat;
  }

  const detail::Content content;

 private:
  struct Last {
    c10::Stream stream;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };
  const at::ScalarType type_;
  const c10::Device device_;
  std::vector<SavedVariable> kept_;  // by the scope outside, if there is one
  std::mutex mutex_;
  std::optional<Last> last_;
};

// What one scope has packed.
class Packer {
 public:
  Packer(const std::vector<Tensor>& stays, const PackOptions& options)
      : options_(options), staying_(detail::storages_of(stays)) {}

  libtorch::Unpack pack(const Tensor& tensor) {
    const at::NoGradGuard no_graph;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    if (!becomes_smaller(tensor)) return detail::hand_on(tensor);
    return [one = packed(tensor), geometry = detail::Geometry(tensor)] {
      const at::NoGradGuard none;
      return geometry.in(one->unpacked());
    };
  }

 private:
  [[nodiscard]] bool becomes_smaller(const Tensor& tensor) const {
    if (!detail::has_plain_storage(tensor) || !at::isFloatingType(tensor.scalar_type()))
      return false;
    const std::size_t size = tensor.storage().nbytes(), each = tensor.element_size();
    return each > (options_.to == PackTo::bf16 ? 2 : 1) && size % each == 0 &&
           static_cast<std::int64_t>(size) >= options_.smallest.count &&
           !staying_.contains(detail::storage_of(tensor));
  }

  std::shared_ptr<Packed> packed(const Tensor& tensor) {
    const auto key = std::pair(detail::storage_of(tensor), tensor.scalar_type());
    if (const auto known = known_[key].lock(); known && known->content.is_of(tensor)) return known;
    const auto made = std::make_shared<Packed>(tensor, options_.to);
    known_[key] = made;
    return made;
  }

  const PackOptions options_;
  const std::set<const c10::StorageImpl*> staying_;
  std::map<std::pair<const c10::StorageImpl*, at::ScalarType>, std::weak_ptr<Packed>> known_;
};

}  // namespace

Pack::Pack(std::vector<Tensor> stays, const PackOptions& options)
    : stays_(std::move(stays)), options_(options) {
  if (options.smallest.count < 0)
    throw UsageError(expectation("Pack", "a size of 0 bytes or more", "a negative one"));
}

libtorch::SavedTensorScope Pack::scope() const {
  return libtorch::SavedTensorScope([packer = std::make_shared<Packer>(stays_, options_)](
                                        const Tensor& tensor) { return packer->pack(tensor); });
}

}  // namespace headroom::nn
