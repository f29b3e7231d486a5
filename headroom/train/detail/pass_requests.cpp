#include "headroom/train/detail/pass_requests.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "headroom/train/stage_alone.h"

namespace headroom::train::detail {
namespace {

using Kind = allocator::Operation::Kind;

// A pass of a part, or what comes before all passes (part -1) or after them (part -2).
struct Segment {
  bool is_forward = false;
  int part = 0;
  auto operator<=>(const Segment&) const = default;
};
constexpr Segment kBefore{.part = -1}, kAfter{.part = -2};

// A tensor, by the pass that makes it, and how many the pass made before.
using Maker = std::pair<Segment, std::size_t>;

class Unrolled {
 public:
  Unrolled(const dryrun::Requests& of_four, const std::vector<plan::Pass>& four, int parts)
      : parts_(parts), ids_(static_cast<std::size_t>(2 * (parts + 2))) {
    Segment now = kBefore;
    std::size_t begun = 0;
    for (const allocator::Operation& request : of_four) {
      if (request.kind == Kind::nothing) {
        now = begun < four.size() ? Segment{four[begun].is_forward, four[begun].part} : kAfter;
        ++begun;
        continue;
      }
      std::vector<allocator::Operation>& own = segments_[now];
      own.push_back(request);
      next_id_ = std::max(next_id_, request.id + 1);
      if (request.kind == Kind::free && now == kAfter) freed_after_.insert(made_by_[request.id]);
      if (request.kind != Kind::allocate) continue;
      made_by_.resize(next_id_);
      made_by_[request.id] = {now, made_[now]++};
    }
    is_sound_ = begun == four.size() + 1;
    // Later passes find tensors by these numbers.
    for (const bool is_forward : {true, false})
      is_sound_ = is_sound_ && made_[{is_forward, 1}] == made_[{is_forward, 2}];
  }

  void add(const Segment& segment) {
    const Segment like = template_of(segment);
    std::vector<std::uint32_t>& made = ids_of(segment);
    for (allocator::Operation request : segments_[like]) {
      if (request.kind == Kind::allocate) {
        const std::uint32_t id = segment == kBefore ? request.id : next_id_++;
        made.push_back(id);
        request.id = id;
      } else if (request.kind == Kind::free || request.kind == Kind::record_stream) {
        const Maker maker = made_by_[request.id];
        if (segment == kAfter && lasts_in_all_parts(maker)) {
          free_of_all_like(maker);
          continue;
        }
        const auto id = id_for(segment, like, maker);
        // What the first part makes is freed once.
        const bool is_repeated = like.part == 2 && maker.first.part == 0;
        if (!id || (is_repeated && request.kind == Kind::free)) {
          is_sound_ = false;
          return;
        }
        request.id = *id;
      }
      requests_.push_back(request);
    }
  }
  [[nodiscard]] std::optional<dryrun::Requests> take() {
    return is_sound_ ? std::optional(std::move(requests_)) : std::nullopt;
  }

 private:
  // Whether each part makes such a tensor, which stays until all passes are over.
  [[nodiscard]] bool lasts_in_all_parts(const Maker& maker) const {
    const auto of_part = [&](int part) {
      return freed_after_.contains({{maker.first.is_forward, part}, maker.second});
    };
    return maker.first.part > 0 && of_part(1) && of_part(2);
  }
  // Frees those of all parts for which the maker's part stands.
  void free_of_all_like(const Maker& maker) {
    for (int part = 1; part < parts_; ++part) {
      const Segment by{maker.first.is_forward, part};
      if (template_of(by).part != maker.first.part) continue;
      const std::vector<std::uint32_t>& made = ids_of(by);
      is_sound_ = is_sound_ && maker.second < made.size();
      allocator::Operation request;
      request.kind = Kind::free;
      if (!is_sound_) return;
      request.id = made[maker.second];
      requests_.push_back(request);
    }
  }
  [[nodiscard]] Segment template_of(const Segment& segment) const {
    if (segment.part < 2) return segment;
    return {segment.is_forward, segment.part + 1 == parts_ ? kFourParts - 1 : 2};
  }
  // Of a tensor that a request of `like` names, where it stands for `segment`.
  [[nodiscard]] std::optional<std::uint32_t> id_for(const Segment& segment, const Segment& like,
                                                    const Maker& maker) {
    Segment by = maker.first;
    // The first part makes what stays for all. Others name tensors of their own part or the one
    // before.
    if (by.part > 0 || (by.part == 0 && like.part == 1)) {
      const int back = (like == kAfter ? kFourParts - 1 : like.part) - by.part;
      if (back < 0 || back > 1) return {};
      by.part = (segment == kAfter ? parts_ - 1 : segment.part) - back;
    }
    const std::vector<std::uint32_t>& made = ids_of(by);
    return maker.second < made.size() ? std::optional(made[maker.second]) : std::nullopt;
  }

  // The tensors that it has made, in order.
  [[nodiscard]] std::vector<std::uint32_t>& ids_of(const Segment& segment) {
    return ids_[static_cast<std::size_t>(2 * (segment.part + 2) + (segment.is_forward ? 1 : 0))];
  }

  int parts_;
  bool is_sound_ = true;
  std::map<Segment, std::vector<allocator::Operation>> segments_;
  std::map<Segment, std::size_t> made_;  // tensors, by the pass that makes them
  std::set<Maker> freed_after_;          // after all passes
  std::vector<Maker> made_by_;           // by id
  std::uint32_t next_id_ = 0;
  std::vector<std::vector<std::uint32_t>> ids_;
  dryrun::Requests requests_;
};

}  // namespace

std::optional<dryrun::Requests> in_more_parts(const dryrun::Requests& of_four,
                                              const std::vector<plan::Pass>& four,
                                              const std::vector<plan::Pass>& more) {
  Unrolled unrolled(of_four, four, static_cast<int>(more.size() / 2));
  unrolled.add(kBefore);
  for (const plan::Pass& pass : more) unrolled.add({pass.is_forward, pass.part});
  unrolled.add(kAfter);
  return unrolled.take();
}

}  // namespace headroom::train::detail
