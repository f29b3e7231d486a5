// What worked before: for a command or model, on a kind of card, with so much memory free. One
// small file in the state folder, for `headroom run` and for training alike.
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

struct Situation {
  std::string job;   // what is run, without what may be changed of it
  std::string card;  // its name: "NVIDIA H100 80GB HBM3"
  Bytes free;        // what it could have
};

struct Remembered {
  std::map<std::string, long long> values;  // "batch", "accumulation"
  std::optional<Bytes> peak;                // most it used
  Bytes free;                               // the least that it worked with
  Bytes tried_up_to;                        // with so much free, more than this did not work
  WallTime when;
};

class Store {
 public:
  explicit Store(std::filesystem::path file = {});  // empty: in the state folder

  // The best (the largest batch) that worked with no more free memory than now. A store that cannot
  // be read knows nothing.
  [[nodiscard]] std::optional<Remembered> find(const Situation& situation) const;

  // Worked, and nothing better did: the search for it began higher. Throws WriteError. Two programs
  // may do so at the same time; neither's is lost.
  void remember(const Situation& situation, const std::map<std::string, long long>& values,
                std::optional<Bytes> peak) const;

  // It does not work any more: nobody begins with it again. Throws WriteError.
  void forget(const Situation& situation, const std::map<std::string, long long>& values) const;

 private:
  std::filesystem::path file_;
};

}  // namespace headroom::plan
