// The sizes and the owners of values.
#include <cmath>
#include <utility>

#include "headroom/forecast/detail/tape.h"

namespace headroom::forecast::detail {

std::int64_t rounded(std::int64_t bytes) {
  constexpr std::int64_t kBlock = 512;
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

std::int64_t size_of(Type type) {
  constexpr std::array<std::int64_t, 5> kSizes{4, 2, 2, 8, 1};  // in the order of Type
  return kSizes[static_cast<std::size_t>(type)];
}

Type promoted(Type a, Type b) {
  return a == b ? a : Type::float32;
}

Held& Held::operator+=(const Held& other) {
  activations += other.activations;
  temporaries += other.temporaries;
  gradients += other.gradients;
  rounded += other.rounded;
  return *this;
}

Held operator*(Held a, std::int64_t times) {
  a.activations *= times;
  a.temporaries *= times;
  a.gradients *= times;
  a.rounded *= times;
  return a;
}

std::int64_t Parameter::bytes() const {
  const double each = bytes_each > 0 ? bytes_each : static_cast<double>(size_of(type));
  return std::llround(each * static_cast<double>(count()));
}

Value::Value(Storage* storage, std::int64_t elements, Type of)
    : count(elements), type(of), storage_(storage) {
  if (storage_ != nullptr) ++storage_->owners;
}

Value::Value(const Value& other)
    : count(other.count),
      type(other.type),
      edge(other.edge),
      by_token(other.by_token),
      storage_(other.storage_) {
  if (storage_ != nullptr) ++storage_->owners;
}

Value::Value(Value&& other) noexcept
    : count(std::exchange(other.count, 0)),
      type(other.type),
      edge(std::exchange(other.edge, {})),
      by_token(other.by_token),
      storage_(std::exchange(other.storage_, nullptr)) {}

Value& Value::operator=(const Value& other) {
  return *this = Value(other);
}

Value& Value::operator=(Value&& other) noexcept {
  if (this == &other) return *this;
  Storage* const before = std::exchange(storage_, std::exchange(other.storage_, nullptr));
  count = std::exchange(other.count, 0);
  type = other.type;
  edge = std::exchange(other.edge, {});
  by_token = other.by_token;
  if (before != nullptr && --before->owners == 0) before->tape->free(before);
  return *this;
}

void Value::reset() {
  if (storage_ != nullptr && --storage_->owners == 0) storage_->tape->free(storage_);
  storage_ = nullptr;
  count = 0;
  edge = {};
}

}  // namespace headroom::forecast::detail
