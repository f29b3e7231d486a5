#include "headroom/trace/detail/pickle_tree.h"

#include <algorithm>

#include "headroom/base/error.h"

namespace headroom::trace::pickle {
namespace {

constexpr std::int64_t kWidest = std::int64_t{1} << 59;  // larger integers do not fit into a value
constexpr std::uint64_t kTextOverhead = 96;              // per text in Names
constexpr std::uint64_t kShapeOverhead = 72;

bool has_items(Type type) {
  return type == Type::list || type == Type::tuple || type == Type::set;
}

}  // namespace

bool Items::next(Value& item) {
  while (piece_ != 0) {
    const Tree::Piece& piece = tree_->pieces_[piece_];
    if (at_ < piece.count) {
      item = tree_->values_[piece.begin + at_++];
      return true;
    }
    piece_ = piece.next;
    at_ = 0;
  }
  return false;
}

Tree::Tree() : pieces_(1), shapes_(1) {}

// ---- Reading ----

std::optional<std::int64_t> Tree::integer(Value value) const {
  if (value.type() == Type::integer) return value.signed_payload();
  if (value.type() == Type::wide_integer) return wide_[value.payload()];
  if (value.type() == Type::boolean) return static_cast<std::int64_t>(value.payload());
  return {};
}

std::optional<double> Tree::number(Value value) const {
  if (value.type() == Type::number) return numbers_[value.payload()];
  if (const auto whole = integer(value)) return static_cast<double>(*whole);
  return {};
}

std::string_view Tree::text(Value value) const {
  if (value.type() != Type::text && value.type() != Type::bytes) return {};
  return texts_.text(static_cast<Name>(value.payload()));
}

Items Tree::items(Value container) const {
  const bool any = has_items(container.type());
  return {this, any ? static_cast<std::uint32_t>(container.payload()) : 0};
}

std::uint64_t Tree::size(Value container) const {
  if (!has_items(container.type()) && container.type() != Type::dict) return 0;
  return pieces_[container.payload()].total;
}

std::uint32_t Tree::place_of(Value key, const Piece& piece) const {
  KnownPlace& known = known_places_[(piece.shape * 31 + key.payload()) % known_places_.size()];
  if (known.shape == piece.shape && known.key == key) return known.place;
  known = {piece.shape, key, kNowhere};
  std::uint32_t place = piece.count;
  for (std::uint32_t shape = piece.shape; place > 0; shape = shapes_[shape].parent) {
    --place;
    if (shapes_[shape].key != key) continue;
    known.place = place;
    break;
  }
  return known.place;
}

std::optional<Value> Tree::find(Value dict, Value key) const {
  if (dict.type() != Type::dict) return {};
  std::optional<Value> found;
  std::uint32_t looked_at = 0;
  for (auto at = static_cast<std::uint32_t>(dict.payload()); at != 0; at = pieces_[at].next) {
    const Piece& piece = pieces_[at];
    looked_at += std::min(piece.count, kMostKeys + 1) + 1;
    if (looked_at > 2 * kMostKeys) return {};
    const std::uint32_t place = place_of(key, piece);
    if (place != kNowhere) found = values_[piece.begin + place];
  }
  return found;
}

std::uint64_t Tree::offset(Value value) const {
  if (value.type() == Type::huge_integer) return value.payload();
  const bool any = has_items(value.type()) || value.type() == Type::dict;
  return any ? pieces_[value.payload()].offset : 0;
}

// ---- Building ----

Value Tree::make_integer(std::int64_t value) {
  if (value >= -kWidest && value < kWidest)
    return {Type::integer, static_cast<std::uint64_t>(value)};
  wide_.push_back(value);
  bytes_ += sizeof value;
  return {Type::wide_integer, wide_.size() - 1};
}

Value Tree::make_number(double value) {
  numbers_.push_back(value);
  bytes_ += sizeof value;
  return {Type::number, numbers_.size() - 1};
}

Value Tree::make_text(Type type, std::string_view text) {
  const std::size_t before = texts_.size();
  const Name name = texts_.number(text);
  if (texts_.size() != before) bytes_ += text.size() + kTextOverhead;
  return {type, name};
}

Value Tree::make_container(Type type, std::uint64_t offset) {
  const std::size_t index = pieces_.size();
  pieces_.push_back({.offset = offset, .last = static_cast<std::uint32_t>(index)});
  bytes_ += sizeof(Piece);
  return {type, index};
}

// The piece for the next values: the last one, if no other values follow it.
Tree::Piece& Tree::room_for(Value container, std::size_t values) {
  if (values_.size() + values > ~std::uint32_t{0} || pieces_.size() >= ~std::uint32_t{0})
    throw InternalError(expectation("trace", "limits that keep to 32 bits", "more values"));
  Piece& first = pieces_[container.payload()];
  first.total += static_cast<std::uint32_t>(values);
  bytes_ += values * sizeof(Value);
  Piece& last = pieces_[first.last];
  if (last.count == 0) last.begin = static_cast<std::uint32_t>(values_.size());
  if (last.begin + last.count == values_.size()) return last;
  const auto index = static_cast<std::uint32_t>(pieces_.size());
  last.next = first.last = index;
  bytes_ += sizeof(Piece);
  return pieces_.emplace_back(Piece{.begin = static_cast<std::uint32_t>(values_.size())});
}

void Tree::append(Value container, std::span<const Value> items) {
  if (items.empty()) return;
  Piece& piece = room_for(container, items.size());
  piece.count += static_cast<std::uint32_t>(items.size());
  values_.insert(values_.end(), items.begin(), items.end());
}

void Tree::set_items(Value dict, std::span<const Value> pairs) {
  if (pairs.empty()) return;
  Piece& piece = room_for(dict, pairs.size() / 2);
  piece.shape = shape_of(piece.shape, pairs);
  piece.count += static_cast<std::uint32_t>(pairs.size() / 2);
  for (std::size_t i = 1; i < pairs.size(); i += 2) values_.push_back(pairs[i]);
}

std::uint32_t Tree::shape_after(std::uint32_t shape, Value key) {
  const auto [step, is_new] =
      next_shape_.try_emplace({shape, key.word()}, static_cast<std::uint32_t>(shapes_.size()));
  if (is_new) {
    shapes_.push_back({.key = key, .parent = shape});
    bytes_ += kShapeOverhead;
  }
  return step->second;
}

std::uint32_t Tree::shape_of(std::uint32_t start, std::span<const Value> pairs) {
  const auto equals_recent = [&] {
    if (start != 0 || pairs.size() != 2 * recent_keys_.size()) return false;
    for (std::size_t i = 0; i < recent_keys_.size(); ++i)
      if (recent_keys_[i] != pairs[2 * i]) return false;
    return true;
  };
  if (equals_recent()) return recent_shape_;
  std::uint32_t shape = start;
  for (std::size_t i = 0; i < pairs.size(); i += 2) shape = shape_after(shape, pairs[i]);
  if (start == 0 && pairs.size() <= std::size_t{2} * kMostKeys) {
    recent_keys_.clear();
    for (std::size_t i = 0; i < pairs.size(); i += 2) recent_keys_.push_back(pairs[i]);
    recent_shape_ = shape;
  }
  return shape;
}

}  // namespace headroom::trace::pickle
