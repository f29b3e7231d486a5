// Settings that worked before, by job, kind of card and free memory. One small file in the state
// folder, shared by `headroom run` and training.
//
//   Store store;                                            // state_dir()/plans.json
//   if (auto known = store.find({key, card, free})) start_with(known->values);
//   store.remember({key, card, free}, {{"batch", 16}, {"accumulation", 4}}, peak);
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/base/time.h"

namespace headroom::plan {

struct Setup {
  std::string job;   // the command or model, without the values that may change
  std::string card;  // the card's name: "NVIDIA H100 80GB HBM3"
  Bytes free;        // memory that the job may use
};

struct Remembered {
  std::map<std::string, long long> values;  // "batch", "accumulation"
  std::optional<Bytes> peak;                // the most memory it used
  Bytes free;                               // the least free memory with which the values worked
  Bytes tried_up_to;                        // the most free memory with which a larger batch failed
  WallTime when;
};

class Store {
 public:
  // An empty path means plans.json in the state folder.
  explicit Store(std::filesystem::path file = {});

  // The entry with the largest batch among those that worked with no more free memory than now. An
  // unreadable store has no entries.
  [[nodiscard]] std::optional<Remembered> find(const Setup& setup) const;

  // Records values that worked. The caller has tried larger ones first. Throws WriteError. Several
  // programs may call it at once: under a file lock no update is lost.
  void remember(const Setup& setup, const std::map<std::string, long long>& values,
                std::optional<Bytes> peak) const;

  // Removes values that no longer work, so that no later run starts with them. Throws WriteError.
  void forget(const Setup& setup, const std::map<std::string, long long>& values) const;

 private:
  std::filesystem::path file_;
};

}  // namespace headroom::plan
