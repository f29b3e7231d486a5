// The settings of a supervised run, and the callbacks through which it reports.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/devices.h"
#include "headroom/gpu/wait.h"

namespace headroom::supervise {

struct Orders {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", for the command

  // Its place.
  gpu::Devices devices;
  // Memory on each card; std::nullopt: what the command used before, else all usable memory.
  std::optional<Bytes> need;
  std::optional<int> count;  // of cards; std::nullopt: 1, inside another `run` all of its cards
  gpu::Order order = gpu::Order::most_free;
  bool whole_cards = false;  // no slices of cards (MIG): CUDA gives a process one of them
  bool by_uuid = false;      // name the cards to the command by UUID
  Seconds wait_timeout{3600};
  Seconds wait_interval{1};
  Seconds wait_for_more{0};  // for more memory than a place had that was too small

  // Values that may change:
  std::vector<std::string> maps;
  long long min_batch = 1;
  bool keep_effective_batch = true;
  std::string resume_arguments;  // "--resume {}"
  std::string checkpoints;       // "out/ckpt-*.pt"
  int max_retries = 10;

  // Watching and remembering:
  std::optional<Seconds> stall;  // report after so long without output and without work
  bool end_stalled = false;
  std::filesystem::path history;  // an empty path means the state folder's
  bool remember = true;           // use and keep settings that worked
  bool output_to_error = false;   // the command's standard output goes to our standard error
};

// Progress callbacks, each called from the calling thread.
struct Listener {
  std::function<void(const std::string&)> say;            // a sentence
  std::function<void(const gpu::WaitProgress&)> waiting;  // about once a second
  std::function<void()> starting;                         // the command gets the terminal

  void tell(const std::string& sentence) const {
    if (say) say(sentence);
  }
  void tell_all(const std::vector<std::string>& sentences) const {
    for (const std::string& sentence : sentences) tell(sentence);
  }
};

}  // namespace headroom::supervise
