#include "headroom/memory/spill.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "headroom/base/host_memory.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/idle_tensors.h"
#include "headroom/memory/rescue.h"
#include "headroom/memory/saved_storage.h"
#include "headroom/memory/saved_storages.h"
#include "headroom/memory/victims.h"

namespace headroom::memory {
namespace {

Bytes half_of_the_host() {
  const std::optional<Bytes> available = host_memory().available;
  return available ? Bytes{available->count / 2} : Bytes{std::int64_t{1} << 62};
}

std::int64_t allocated_on(c10::Device device) {
  return memory_of(device).statistics(device.index()).allocated_bytes[0].current;
}

// What this process may have of a card.
Bytes share_of(const FreeAndTotal& card) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(card.total.count) * card.share)};
}

Bytes free_on(c10::Device device) {
  const auto card = memory_of(device).free_and_total(device.index());
  if (!card) return {};
  const std::int64_t reserved =
      memory_of(device).statistics(device.index()).reserved_bytes[0].current;
  return std::min(card->free, share_of(*card) - Bytes{reserved});
}

constexpr int kStepsBetween = 8;  // that it is tried to move less

}  // namespace

// What moved in one step moves early in the next: `early_` has the places of saved storages, with
// their sizes. Idle tensors that had to leave leave as soon as they are idle again.
class Spill::Shared final : public Rescuer, public std::enable_shared_from_this<Shared> {
 public:
  static std::shared_ptr<Shared> of_process(const SpillOptions& options);

  explicit Shared(const SpillOptions& options) : books_(std::make_shared<WaitingBooks>()) {
    const Bytes all = options.host_memory.value_or(half_of_the_host());
    books_->budget = Bytes{all.count / std::max(options.sharers, 1)};
    saved_ = std::make_shared<SavedStorages>(
        SavedStorages::Options{.smallest = options.smallest,
                               .has_room =
                                   [books = books_](c10::Device device, Bytes size) {
                                     return !books->full_at ||
                                            Bytes{allocated_on(device)} + size < *books->full_at;
                                   }},
        books_);
    idle_ = std::make_shared<IdleTensors>(options.smallest, true, books_);
  }

  libtorch::Unpack pack(const at::Tensor& tensor) {
    return saved_->pack(tensor, [&](std::int64_t place, Bytes size) {
      if (books_->use.moved > 0) look_at(tensor.device());
      if (place == 0) of_step_.clear();  // those of the last forward pass
      of_step_.emplace_back(place, size.count);
      return early_.contains(of_step_.back());
    });
  }
  void set_idle(const std::vector<at::Tensor>& tensors, double needed) {
    idle_->set_idle(tensors, needed);
  }
  void want(const std::vector<at::Tensor>& tensors) { idle_->want(tensors); }
  void end_step();
  SpillUse use() const;

  bool frees_for(const Refusal& refusal) override;
  std::string why_not(const Refusal& refusal) override;

 private:
  bool move_some(const Refusal& refusal);
  void look_at(c10::Device device);
  void move_more();
  void move_less();

  const std::shared_ptr<WaitingBooks> books_;  // its lock guards what follows
  std::shared_ptr<SavedStorages> saved_;
  std::shared_ptr<IdleTensors> idle_;
  using Place = std::pair<std::int64_t, std::int64_t>;
  std::set<Place> early_;
  std::vector<Place> of_step_;  // saved in this step, in order
  Bytes largest_refused_;       // in this step
  // How much was free at least in this step, of what a card could give.
  std::optional<Bytes> slack_;
  int steps_until_less_ = kStepsBetween, steps_between_ = kStepsBetween;
  bool moved_less_ = false;  // in the last step but one
  std::int64_t refused_before_ = 0;
  SpillUse use_;
  std::string problem_;  // why the last move failed; "" if it did not
};

std::shared_ptr<Spill::Shared> Spill::Shared::of_process(const SpillOptions& options) {
  static std::mutex mutex;
  static auto& only = *new std::weak_ptr<Shared>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Shared> shared = only.lock();
  if (!shared) only = shared = std::make_shared<Shared>(options);
  return shared;
}

SpillUse Spill::Shared::use() const {
  const WaitingBooks::Lock lock(*books_);
  SpillUse use = use_;
  use.saved = saved_->saved();
  use.moved = books_->use.moved_bytes;
  use.waiting = books_->use.waiting;
  use.peak_waiting = books_->use.peak_waiting;
  return use;
}

bool Spill::Shared::frees_for(const Refusal& refusal) {
  const auto begin = std::chrono::steady_clock::now();
  const WaitingBooks::Lock lock(*books_);
  if (refusal.times == 1) ++use_.refused;
  largest_refused_ = std::max(largest_refused_, refusal.requested);
  const Bytes full = Bytes{allocated_on(refusal.device)} - refusal.requested;
  books_->full_at = std::min(books_->full_at.value_or(full), full);
  bool frees = false;
  try {
    frees = move_some(refusal);
    problem_.clear();
  } catch (const c10::Error& error) {  // the card's refusal stands
    problem_ = error.what_without_backtrace();
  } catch (const std::exception& error) {  // such as a host without memory
    problem_ = error.what();
  }
  if (frees && refusal.times == 1) ++use_.rescued;
  if (!frees && refusal.times > 1) --use_.rescued;
  use_.needed = std::max(
      use_.needed, Bytes{allocated_on(refusal.device)} + books_->use.waiting + refusal.requested);
  use_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return frees;
}

bool Spill::Shared::move_some(const Refusal& refusal) {
  DeviceMemory& memory = memory_of(refusal.device);
  const int index = refusal.device.index();
  std::vector<Movable> movable = idle_->movable(refusal.device);
  std::vector<Movable> saved = saved_->movable(refusal.device);
  movable.insert(movable.end(), std::make_move_iterator(saved.begin()),
                 std::make_move_iterator(saved.end()));
  const auto chosen = victims({.segments = memory.snapshot(index), .free = free_on(refusal.device)},
                              movable, {.size = refusal.requested, .stream = refusal.stream});
  // A refusal for no reason that we can see, of this process at least: ask once more.
  if (chosen && chosen->empty() && refusal.times == 1) return true;
  bool any = false;
  const auto leave = [&](const Movable& one) {
    if (!one.leave()) return;
    any = true;
    if (one.place >= 0) early_.emplace(one.place, one.size.count);
  };
  if (chosen)
    for (const std::size_t which : *chosen) leave(movable[which]);
  if (!any)
    for (const Movable& one : movable) leave(one);
  return any;
}

// Called where a step needs much.
void Spill::Shared::look_at(c10::Device device) {
  const auto card = memory_of(device).free_and_total(device.index());
  if (!card) return;
  const Bytes all = share_of(*card);
  const Bytes spare{all.count - all.count / 10 - allocated_on(device)};
  slack_ = std::min(slack_.value_or(spare), spare);
}

void Spill::Shared::end_step() {
  const WaitingBooks::Lock lock(*books_);
  saved_->begin_pass();
  if (books_->use.moved == 0) return of_step_.clear();
  saved_->warm(books_->use.peak_waiting);
  const bool was_refused = use_.refused > refused_before_;
  refused_before_ = use_.refused;
  if (was_refused && moved_less_) steps_between_ *= 2;  // that was too little
  if (was_refused) {
    steps_until_less_ = steps_between_;
    move_more();
    for (const c10::Device card : cards_now()) memory_of(card).empty_cache();
  }
  moved_less_ = false;
  if (--steps_until_less_ <= 0 && slack_) {
    steps_until_less_ = steps_between_;
    move_less();
  }
  slack_.reset();
  of_step_.clear();
  largest_refused_ = {};
}

// As much more than had to as the largest refused request, in small storages, so that the next step
// meets no refusal though its memory lies differently.
void Spill::Shared::move_more() {
  std::vector<Place> small;
  for (const Place& each : of_step_)
    if (each.second * 4 >= largest_refused_.count && !early_.contains(each)) small.push_back(each);
  std::stable_sort(small.begin(), small.end(),
                   [](const Place& one, const Place& other) { return one.second < other.second; });
  std::int64_t sum = 0;
  for (auto each = small.begin(); each != small.end() && sum < largest_refused_.count; ++each) {
    early_.insert(*each);
    sum += each->second;
  }
}

// With memory to spare, what is needed soonest no longer leaves early.
void Spill::Shared::move_less() {
  for (auto last = early_.rbegin(); last != early_.rend(); ++last) {
    if (last->second > slack_->count) continue;
    early_.erase(std::next(last).base());
    moved_less_ = true;
    return;
  }
  if (slack_->count > 0) idle_->keep(*slack_);
}

std::string Spill::Shared::why_not(const Refusal&) {
  const WaitingBooks::Lock lock(*books_);
  const std::string waiting = to_string(books_->use.waiting);
  if (!problem_.empty()) return "headroom: nothing more could move to the host: " + problem_;
  if (books_->use.stayed > 0)
    return "headroom: " + waiting +
           " of this program wait on the host, which has no room for more (" +
           to_string(*books_->budget) + " are allowed)";
  return "headroom: " + waiting +
         " of this program wait on the host, and nothing that is left on the card may leave now";
}

Spill::Spill(const SpillOptions& options)
    : shared_(Shared::of_process(options)), rescue_(std::make_unique<RescueScope>(shared_)) {
  if (options.starts_cuda) rescue_on_cuda();
}

Spill::~Spill() = default;

libtorch::SavedTensorScope Spill::scope() {
  return libtorch::SavedTensorScope([shared = shared_](const at::Tensor& tensor) {
    libtorch::Unpack unpack = shared->pack(tensor);
    return unpack ? unpack : hand_on(tensor);
  });
}

libtorch::Unpack Spill::pack(const at::Tensor& tensor) {
  return shared_->pack(tensor);
}

void Spill::set_idle(const std::vector<at::Tensor>& tensors, double needed) {
  shared_->set_idle(tensors, needed);
}
void Spill::want(const std::vector<at::Tensor>& tensors) {
  shared_->want(tensors);
}

void Spill::end_step(const std::vector<at::Tensor>& idle) {
  shared_->set_idle(idle, 1);
  shared_->end_step();
}

SpillUse Spill::use() const {
  return shared_->use();
}

std::string to_string(const SpillUse& use) {
  if (use.refused == 0) return "nothing was refused, nothing moved";
  return std::to_string(use.refused) + " requests were refused, " + std::to_string(use.rescued) +
         " of them served: at most " + to_string(use.peak_waiting) + " waited on the host, " +
         to_string(use.moved) + " moved, " + std::to_string(use.seconds) +
         " s; without waiting it needs " + to_string(use.needed);
}

}  // namespace headroom::memory
