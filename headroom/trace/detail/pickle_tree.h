// The contents of a pickle, as a tree of small values. Every value is eight bytes; a container is
// an index into arenas. Values that the file shares are shared here too, so the tree may have
// cycles: every walk over it must be bounded. One owner, one thread.
//
//   const Value size = tree.make_text(Type::text, "size");
//   for (Items entries = tree.items(list); entries.next(entry);)
//     if (const auto found = tree.find(entry, size)) sum += tree.integer(*found).value_or(0);
//
// A dict is a "shape" (its keys in order, stored once) and its values. So a million trace entries
// with the same keys cost 40 bytes each, and 8 for each value, whatever their size in the file.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headroom/trace/event.h"

namespace headroom::trace::pickle {

enum class Type : std::uint8_t {
  none,
  boolean,
  integer,
  wide_integer,  // more than 60 bits
  huge_integer,  // more than 64 bits: only its offset in the file is kept
  number,        // a float
  text,
  bytes,
  list,
  tuple,
  dict,
  set,
  function,  // one of the few functions that are understood as data
};

class Value {
 public:
  constexpr Value() = default;
  constexpr Value(Type type, std::uint64_t payload)
      : word_(payload << 4 | static_cast<std::uint64_t>(type)) {}
  [[nodiscard]] constexpr Type type() const { return static_cast<Type>(word_ & 15); }
  [[nodiscard]] constexpr std::uint64_t payload() const { return word_ >> 4; }
  [[nodiscard]] constexpr std::int64_t signed_payload() const {
    return static_cast<std::int64_t>(word_) >> 4;
  }
  [[nodiscard]] constexpr std::uint64_t word() const { return word_; }
  constexpr bool operator==(const Value&) const = default;

 private:
  std::uint64_t word_ = 0;
};

class Tree;

// The items of a list, tuple or set, in order.
class Items {
 public:
  bool next(Value& item);

 private:
  friend class Tree;
  Items(const Tree* tree, std::uint32_t piece) : tree_(tree), piece_(piece) {}
  const Tree* tree_;
  std::uint32_t piece_;
  std::uint32_t at_ = 0;
};

class Tree {
 public:
  Tree();

  // ---- Reading ----

  Value root;
  // Also converts True and False.
  [[nodiscard]] std::optional<std::int64_t> integer(Value value) const;
  // Also converts integers.
  [[nodiscard]] std::optional<double> number(Value value) const;
  // The content of text and bytes; "" for all other types.
  [[nodiscard]] std::string_view text(Value value) const;
  // Has no items unless `container` is a list, tuple or set.
  [[nodiscard]] Items items(Value container) const;
  [[nodiscard]] std::uint64_t size(Value container) const;
  // If a key occurs twice, finds the later one. std::nullopt if the key is missing, if `dict` is
  // not a dict, or if it has more keys than any dict of a snapshot (a file could otherwise ask for
  // many long look-ups).
  [[nodiscard]] std::optional<Value> find(Value dict, Value key) const;
  // Calls visit(key, value) for each key in order. For dicts that are read once. Visits only a part
  // of a large one.
  template <typename Visit>
  void each_key(Value dict, const Visit& visit) const;
  // The offset in the file at which a list, tuple, dict, set or huge integer began.
  [[nodiscard]] std::uint64_t offset(Value value) const;

  // ---- Building ----

  Value make_integer(std::int64_t value);
  Value make_number(double value);
  Value make_text(Type type, std::string_view text);
  Value make_container(Type type, std::uint64_t offset);
  // Appends to a list, tuple or set.
  void append(Value container, std::span<const Value> items);
  // `pairs` is key, value, key, value...
  void set_items(Value dict, std::span<const Value> pairs);
  // Memory of the whole tree, within a few percent.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  friend class Items;
  static constexpr std::uint32_t kMostKeys = 256;

  // Consecutive values of one container. A container that grows after others began has several
  // pieces.
  struct Piece {
    std::uint64_t offset = 0;
    std::uint32_t begin = 0, count = 0;
    std::uint32_t next = 0;   // 0: none
    std::uint32_t last = 0;   // in the first piece: index of the last one
    std::uint32_t total = 0;  // in the first piece: values in all pieces
    std::uint32_t shape = 0;  // in dicts: the keys of this piece
  };
  // A list of keys: the keys of `parent`, then this one.
  struct Shape {
    Value key;
    std::uint32_t parent = 0;
  };
  struct StepHash {
    std::size_t operator()(const std::pair<std::uint32_t, std::uint64_t>& step) const {
      return std::hash<std::uint64_t>()((step.second ^ step.first) * 0x9E3779B97F4A7C15u);
    }
  };

  // Position of the key's value in a piece of this shape; kNowhere if the shape lacks the key.
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::uint32_t place_of(Value key, const Piece& piece) const;

  Piece& room_for(Value container, std::size_t values);
  std::uint32_t shape_after(std::uint32_t shape, Value key);
  std::uint32_t shape_of(std::uint32_t start, std::span<const Value> pairs);

  std::deque<Piece> pieces_;
  std::deque<Value> values_;
  std::deque<Shape> shapes_;
  std::unordered_map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t, StepHash> next_shape_;
  // The keys and shape of the previous dict, which the next one usually has too.
  std::vector<Value> recent_keys_;
  std::uint32_t recent_shape_ = 0;
  // Recent answers of place_of: a million dicts are asked for the same keys of the same shapes.
  struct KnownPlace {
    std::uint32_t shape = 0;
    Value key;
    std::uint32_t place = kNowhere;
  };
  mutable std::array<KnownPlace, 512> known_places_;
  std::deque<std::int64_t> wide_;
  std::deque<double> numbers_;
  Names texts_;
  std::uint64_t bytes_ = 0;
};

template <typename Visit>
void Tree::each_key(Value dict, const Visit& visit) const {
  if (dict.type() != Type::dict) return;
  for (auto at = static_cast<std::uint32_t>(dict.payload()); at != 0; at = pieces_[at].next) {
    const Piece& piece = pieces_[at];
    if (piece.count > kMostKeys) return;
    std::vector<Value> keys(piece.count);
    std::uint32_t shape = piece.shape;
    for (auto key = keys.rbegin(); key != keys.rend(); ++key, shape = shapes_[shape].parent)
      *key = shapes_[shape].key;
    for (std::uint32_t i = 0; i < piece.count; ++i) visit(keys[i], values_[piece.begin + i]);
  }
}

}  // namespace headroom::trace::pickle
