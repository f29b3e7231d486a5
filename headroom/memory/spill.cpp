#include "headroom/memory/spill.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
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

Bytes reserved_on(c10::Device device) {
  return Bytes{memory_of(device).statistics(device.index()).reserved_bytes[0].current};
}

// What this process may have of a card.
Bytes share_of(const FreeAndTotal& card) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(card.total.count) * card.share)};
}

Bytes free_on(c10::Device device) {
  const auto card = memory_of(device).free_and_total(device.index());
  if (!card) return {};
  return std::min(card->free, share_of(*card) - reserved_on(device));
}

constexpr int kAskedInVain = 3;
constexpr int kStepsBetween = 8;  // that it is tried to move less

}  // namespace

// What moved in one step moves early in the next. Idle tensors that had to leave leave as soon as
// they are idle again.
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
                                     const auto full_at = books->full_at.find(device.index());
                                     return full_at == books->full_at.end() ||
                                            Bytes{allocated_on(device)} + size < full_at->second;
                                   }},
        books_);
    idle_ = std::make_shared<IdleTensors>(options.smallest, true, books_);
  }

  libtorch::Unpack pack(const at::Tensor& tensor) {
    return saved_->pack(tensor, [&](std::int64_t number, Bytes size) {
      Card& card = cards_[tensor.device().index()];
      if (books_->use.moved > 0) look_at(card, tensor.device());
      return card.early.contains({number, size.count});
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
  using Place = std::pair<std::int64_t, std::int64_t>;  // a saved storage's number, and its bytes
  struct Card {
    std::set<Place> early;
    // At the refusals of this step: what could leave, and what was free but too small.
    std::set<Place> could_leave;
    Bytes in_pieces;
    Bytes largest_refused;  // in this step
    // How much was free at least in this step, of what the card could give.
    std::optional<Bytes> slack;
    int steps_until_less = kStepsBetween, steps_between = kStepsBetween;
    bool moved_less = false;  // in the last step but one
  };

  bool move_some(const Refusal& refusal);
  static void look_at(Card& card, c10::Device device);
  void end_step(Card& card);
  void move_more(Card& card);
  void move_less(Card& card);

  const std::shared_ptr<WaitingBooks> books_;  // its lock guards what follows
  std::shared_ptr<SavedStorages> saved_;
  std::shared_ptr<IdleTensors> idle_;
  std::map<c10::DeviceIndex, Card> cards_;
  SpillUse use_;
  std::int64_t refused_before_ = 0;  // this step
  Bytes moved_before_;
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
  for (const c10::Device card : cards_now())
    use.needed = std::max(use.needed,
                          Bytes{memory_of(card).statistics(card.index()).allocated_bytes[0].peak});
  return use;
}

bool Spill::Shared::frees_for(const Refusal& refusal) {
  const auto begin = std::chrono::steady_clock::now();
  const WaitingBooks::Lock lock(*books_);
  if (refusal.times == 1) ++use_.refused;
  const c10::DeviceIndex index = refusal.device.index();
  Card& card = cards_[index];
  card.largest_refused = std::max(card.largest_refused, refusal.requested);
  const Bytes allocated{allocated_on(refusal.device)}, full = allocated - refusal.requested;
  card.in_pieces = std::max(card.in_pieces, reserved_on(refusal.device) - allocated);
  Bytes& full_at = books_->full_at.try_emplace(index, full).first->second;
  full_at = std::min(full_at, full);
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
  use_.needed = std::max(use_.needed, Bytes{allocated_on(refusal.device)} +
                                          books_->waiting_of[index] + refusal.requested);
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
  const CardNow card{.segments = memory.snapshot(index), .free = free_on(refusal.device)};
  // What was enough by our books and was not in fact: ever more.
  const Bytes more{(refusal.times - 1) *
                   std::max(card.large_segment.count, refusal.requested.count / 4)};
  const auto chosen =
      victims(card, movable, {.size = refusal.requested + more, .stream = refusal.stream});
  // A refusal for no reason that we can see, of this process at least: ask once more.
  if (chosen && chosen->empty() && refusal.times <= kAskedInVain) return true;
  auto& could_leave = cards_[refusal.device.index()].could_leave;
  for (const Movable& one : movable)
    if (one.place >= 0) could_leave.emplace(one.place, one.size.count);
  bool any = false;
  const auto leave = [&](const Movable& one) {
    if (!one.leave()) return;
    any = true;
    if (one.place >= 0) cards_[refusal.device.index()].early.emplace(one.place, one.size.count);
  };
  if (chosen)
    for (const std::size_t which : *chosen) leave(movable[which]);
  if (!any)
    for (const Movable& one : movable) leave(one);
  return any;
}

// Called where a step needs much.
void Spill::Shared::look_at(Card& card, c10::Device device) {
  const auto now = memory_of(device).free_and_total(device.index());
  if (!now) return;
  const Bytes all = share_of(*now);
  const Bytes spare{all.count - all.count / 10 - allocated_on(device)};
  card.slack = std::min(card.slack.value_or(spare), spare);
}

void Spill::Shared::end_step() {
  const WaitingBooks::Lock lock(*books_);
  saved_->begin_pass();
  const Bytes moved = books_->use.moved_bytes;
  use_.moved_in_step = moved - std::exchange(moved_before_, moved);
  use_.refused_in_step = use_.refused - std::exchange(refused_before_, use_.refused);
  const bool any_moved = books_->use.moved > 0;
  if (any_moved) saved_->warm(books_->use.peak_waiting);
  for (const c10::Device device : any_moved ? cards_now() : std::vector<c10::Device>()) {
    const auto card = cards_.find(device.index());
    if (card == cards_.end()) continue;
    if (card->second.largest_refused > Bytes{}) memory_of(device).empty_cache();
    end_step(card->second);
  }
}

void Spill::Shared::end_step(Card& card) {
  if (card.largest_refused > Bytes{}) {
    if (card.moved_less) card.steps_between *= 2;  // that was too little
    card.steps_until_less = card.steps_between;
    move_more(card);
  }
  card.moved_less = false;
  if (--card.steps_until_less <= 0 && card.slack) {
    card.steps_until_less = card.steps_between;
    move_less(card);
  }
  card.slack.reset();
  card.largest_refused = {};
}

// A little more than had to, because memory lies differently in the next step: as much as lay in
// pieces, and a page. What is needed last goes first.
void Spill::Shared::move_more(Card& card) {
  const auto cards = static_cast<std::int64_t>(cards_.size());
  std::int64_t rest = std::min(use_.moved_in_step.count / cards / 12,
                               card.in_pieces.count + CardNow{}.large_segment.count);
  for (const Place& each : card.could_leave)
    if (rest > 0 && each.second <= rest && card.early.insert(each).second) rest -= each.second;
  card.could_leave.clear();
  card.in_pieces = {};
}

// With memory to spare, what is needed soonest no longer leaves early.
void Spill::Shared::move_less(Card& card) {
  for (auto last = card.early.rbegin(); last != card.early.rend(); ++last) {
    if (last->second > card.slack->count) continue;
    card.early.erase(std::next(last).base());
    card.moved_less = true;
    return;
  }
  if (card.slack->count > 0) idle_->keep(*card.slack);
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
  return libtorch::SavedTensorScope(hooks());
}

libtorch::Pack Spill::hooks() {
  return [shared = shared_](const at::Tensor& tensor) {
    libtorch::Unpack unpack = shared->pack(tensor);
    return unpack ? unpack : hand_on(tensor);
  };
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
