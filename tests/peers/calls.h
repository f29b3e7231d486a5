// What each operator of a training step keeps and needs on a card, in the order they run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/sim/watcher.h"

namespace headroom::nets {

struct Call {
  std::string name;  // "aten::native_dropout"
  // What the rules' table says CUDA keeps more than the CPU; nothing: it has no row for it.
  std::optional<std::int64_t> difference;
  std::int64_t before = 0;  // bytes alive when it began
  std::int64_t most = 0;    // bytes alive at most until the next one began
  struct Block {
    std::int64_t bytes = 0;
    bool temporary = false;        // freed before the operator returned
    std::size_t freed_during = 0;  // which call had begun last when it was freed
  };
  std::vector<Block> blocks;

  // Of its results, those alive when call number `moment` began.
  [[nodiscard]] std::int64_t kept_bytes(std::size_t moment) const;
};

// Operators inside an operator's rule belong to that one. One thread at a time.
class Calls final : public sim::Watcher {
 public:
  // `alive`: the bytes on the card when watching begins.
  explicit Calls(std::int64_t alive) : alive_(alive) {}
  void on_operator(const sim::OperatorCall& call) override;
  void on_happening(const allocator::Happening& happening) override;

  [[nodiscard]] const std::vector<Call>& all() const { return calls_; }

 private:
  void allocate(std::uint64_t address, std::int64_t bytes);
  void free(std::uint64_t address);

  struct Place {
    std::size_t call = 0, block = 0;
    std::int64_t bytes = 0;
    bool of_a_call = false;
  };
  std::int64_t alive_;
  std::vector<Call> calls_;
  std::map<std::uint64_t, Place> places_;
};

}  // namespace headroom::nets
