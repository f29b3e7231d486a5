#include "headroom/sim/dispatch/assumptions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/assumed.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/known.h"
#include "headroom/sim/device/running_operator.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;

std::string_view base_name(const Call& call) {
  return std::string_view(call.op.name).substr(0, call.op.name.find('.'));
}

// Whole numbers of any type: masks are also made of bytes.
bool can_be_given(const Tensor& tensor) {
  if (!tensor.defined() || !on_card(tensor) || tensor.numel() == 0 || is_known(tensor) ||
      block_of(tensor.storage()) == nullptr)
    return false;
  const bool is_whole = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return is_knowable(tensor, true) || (is_whole && tensor.storage().nbytes() <= kMostKnownFromHost);
}

void give(const Tensor& tensor, const Tensor& values) {
  give_data(tensor.storage());
  block_of(tensor.storage())->assumed = true;
  std::memset(tensor.storage().mutable_data(), 0, tensor.storage().nbytes());
  Aliases aliases(c10::DeviceType::CPU);
  aliases.of(tensor).copy_(values);
}

// 0, 1, ..., count - 1, each `count` apart as evenly as whole numbers allow: i * upto / count.
Tensor spread(std::int64_t count, std::int64_t upto) {
  return at::arange(count, at::kLong).mul_(upto).floor_divide_(std::max<std::int64_t>(count, 1));
}

// As many as share_of() says are true, at even distances.
Tensor mask_of(const Call& call, const Tensor& like) {
  Tensor mask = at::zeros({like.numel()}, at::kBool);
  const std::int64_t count = share_of(*call.card, like.numel());
  if (count > 0) mask.index_fill_(0, spread(count, like.numel()), true);
  return mask.view(like.sizes());
}

// `numel` values of which a share are different.
Tensor different(const Call& call, const Tensor& like) {
  const std::int64_t kinds = std::max<std::int64_t>(share_of(*call.card, like.numel()), 1);
  return spread(like.numel(), kinds).view(like.sizes());
}

std::string share_text(const Call& call, const std::string& what) {
  std::ostringstream text;
  text << call.op.name.substr(call.op.name.find("::") + 2) << ": a share of "
       << *call.card->assume_true() << " " << what;
  return text.str();
}

// The values for one argument, and in words; undefined: none.
std::pair<Tensor, std::string> values_for(const Call& call, const Tensor& argument) {
  const std::string_view name = base_name(call);
  if (name == "aten::bincount") {
    const auto least = call.stack[call.first + 2].toInt();
    const std::int64_t bins =
        least > 0 ? least : std::max<std::int64_t>(share_of(*call.card, argument.numel()), 1);
    return {at::arange(argument.numel(), at::kLong).remainder_(bins),
            "bincount: the values are spread over " + std::to_string(bins) + " bins"};
  }
  if (name == "aten::repeat_interleave")
    return {at::ones(argument.sizes(), at::kLong), "repeat_interleave: one repeat of each"};
  if (name.find("unique") != std::string_view::npos)
    return {different(call, argument), share_text(call, "of the values differ")};
  return {mask_of(call, argument), share_text(call, "of the mask is true")};
}

bool decides_a_shape(const Call& call, const Tensor& argument) {
  const std::string_view name = base_name(call);
  const bool only_masks = name == "aten::index" || name == "aten::index_put_" ||
                          name == "aten::_index_put_impl_" || name == "aten::masked_select";
  return !only_masks || argument.scalar_type() == at::kBool || argument.scalar_type() == at::kByte;
}

}  // namespace

bool assume_arguments(const Call& call) {
  if (!call.card->assume_true()) return false;
  bool gave = false;
  call.for_each_tensor([&](const Tensor& argument) {
    if (!can_be_given(argument) || !decides_a_shape(call, argument)) return;
    const Tensor own = own_elements(argument);
    const auto [values, what] = values_for(call, own);
    give(own, values);
    call.card->note_assumption(what);
    gave = true;
  });
  return gave;
}

Plan plan_by_share(Call& call) {
  const AssumingScope scope;
  Plan planned = plan(call);
  if (planned.made) call.card->note_assumption(share_text(call, "of the mask is true"));
  return planned;
}

bool assume_results(Call& call) {
  if (call.op.name.starts_with("aten::") || !call.card->assume_true() ||
      call.op.name != "torchvision::nms")
    return false;
  const Tensor boxes = call.stack[call.first].toTensor();
  const std::int64_t kept = share_of(*call.card, boxes.size(0));
  Tensor places = at::empty({kept}, boxes.options().dtype(at::kLong));
  if (kept > 0) give(places, spread(kept, boxes.size(0)));
  call.card->note_assumption(share_text(call, "of the boxes stays"));
  call.set_values({places});
  return true;
}

std::optional<Places> places_found(const Call& call) {
  if (!call.card->assume_true()) return {};
  const std::string_view name = call.op.name;
  const auto along = [&](std::size_t result, std::size_t dim_argument) {
    const Tensor x = call.stack[call.first].toTensor();
    const std::int64_t dim = call.stack[call.first + dim_argument].toInt();
    return Places{result, dim, x.dim() == 0 ? 1 : x.size(at::maybe_wrap_dim(dim, x.dim()))};
  };
  const auto one_along = [&](std::size_t result, std::size_t dim_argument) {
    Places places = along(result, dim_argument);
    places.dim = -1;  // the result may lack that dimension
    return places;
  };
  const auto all_along = [&](std::size_t result, std::size_t dim_argument) {
    Places places = along(result, dim_argument);
    places.is_order = true;
    return places;
  };
  if (name == "aten::topk") return along(1, 2);
  if (name == "aten::sort") return all_along(1, 1);
  if (name == "aten::sort.stable") return all_along(1, 2);
  if (name == "aten::argsort") return all_along(0, 1);
  if (name == "aten::argsort.stable") return all_along(0, 2);
  if (name == "aten::max.dim" || name == "aten::min.dim") return one_along(1, 1);
  if (name == "aten::argmax" || name == "aten::argmin") {
    if (!call.stack[call.first + 1].isNone()) return one_along(0, 1);
    return Places{0, -1, call.stack[call.first].toTensor().numel()};
  }
  if (name == "aten::multinomial") return Places{0, -1, call.stack[call.first].toTensor().size(-1)};
  return {};
}

void assume_places(const Call& call, const Places& places) {
  const Tensor result = call.stack[call.first + places.result].toTensor();
  if (!can_be_given(result)) return;
  const std::int64_t dim = result.dim() == 0 ? 0 : at::maybe_wrap_dim(places.dim, result.dim());
  // In rows along the dimension, so that no row has a place twice.
  const Tensor rows = result.dim() == 0 ? result : result.movedim(dim, -1);
  Tensor values;
  if (places.is_order)
    values = at::arange(rows.size(-1), at::kLong).expand(rows.sizes());
  else  // not from 0, which is often a special token
    values = at::arange(rows.numel(), at::kLong)
                 .add_(places.among / 2)
                 .remainder_(std::max<std::int64_t>(places.among, 1))
                 .view(rows.sizes());
  give(result, result.dim() == 0 ? values : values.movedim(-1, dim));
  call.card->note_assumption(std::string(base_name(call).substr(6)) +
                             ": the places are spread evenly");
}

}  // namespace headroom::sim::detail
