#include "headroom/forecast/detail/image_networks.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::forecast::detail {

Value convolved(Network& net, const Value& x, Image& image, const Convolution& of, bool with_bias) {
  Parameter& weight = net.weight(of.out, image.channels / of.groups * of.kernel * of.kernel);
  weight.kernel = of.kernel;
  Parameter* const bias = with_bias ? &net.vector(of.out) : nullptr;
  image = result_of(image, of);
  const auto low = [&](const Value& y) {
    return net.situation.low ? cast(net.tape, y, *net.situation.low) : y;
  };
  return convolution(net.tape, low(x), low(net.tape.use(weight)),
                     bias != nullptr ? low(net.tape.use(*bias)) : Value(), of.out, image.count());
}

Value pixels_of(const Network& net, std::int64_t channels) {
  const std::int64_t side = net.situation.image;
  return {nullptr, net.situation.rows * channels * side * side, net.situation.type};
}

}  // namespace headroom::forecast::detail
