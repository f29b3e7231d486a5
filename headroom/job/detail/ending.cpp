#include "headroom/job/detail/ending.h"

#include <algorithm>
#include <csignal>

namespace headroom::job {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kByThemselves{1};
constexpr seconds kAfterTerm{5};
constexpr seconds kAfterAsking{10};
constexpr int kMostKills = 100;
constexpr milliseconds kBetweenKills{100};  // for processes that fork faster than they are found

}  // namespace

void Ending::ask(Clock::time_point now) {
  if (kill_at_) return;
  terminate_at_.reset();
  send(SIGTERM);
  kill_at_ = now + kAfterAsking;
}

void Ending::command_ended(Clock::time_point now) {
  command_ended_ = true;
  if (!kill_at_) terminate_at_ = now + kByThemselves;
}

std::optional<Clock::time_point> Ending::due() const {
  return terminate_at_ ? terminate_at_ : kill_at_;
}

void Ending::advance(Clock::time_point now) {
  if (terminate_at_ && now >= *terminate_at_) {
    terminate_at_.reset();
    send(SIGTERM);
    kill_at_ = now + kAfterTerm;
  }
  if (!kill_at_ || now < *kill_at_) return;
  given_up_ = kills_ >= kMostKills;
  ++kills_;
  send(SIGKILL);
  kill_at_ = now + kBetweenKills;
}

std::vector<std::string> Ending::stuck() const {
  std::vector<std::string> names;
  for (const ProcessIdentity& process : tree_.living()) names.push_back(tree_.command_of(process));
  return names;
}

void Ending::send(int signal) {
  const std::vector<ProcessIdentity> living = tree_.living();
  // Reads the commands before any process is gone.
  for (const ProcessIdentity& process : living)
    if (command_ended_ && named_.insert(process).second)
      names_.push_back(tree_.command_of(process));
  for (const ProcessIdentity& process : living) {
    tree_.signal(process, signal);
    if (signal == SIGTERM)
      tree_.signal(process, SIGCONT);  // a stopped process would not handle SIGTERM
  }
}

}  // namespace headroom::job
