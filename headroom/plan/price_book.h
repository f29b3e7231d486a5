// Prices of stages that dry runs have found, kept from run to run: a file in the state folder for
// each model with its settings. With known prices a plan needs no dry run, and no LibTorch.
//
//   PriceBook book(identity);             // state_dir()/prices/HASH.json
//   for (const auto& [stage, price] : book.prices()) use(stage, price);
//   book.add(stage, price);
//   book.save();
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "headroom/base/bytes.h"
#include "headroom/base/json.h"
#include "headroom/plan/pricer.h"

namespace headroom::plan {

struct StagePrice {
  Bytes resident;   // parameters, buffers, gradients and optimizer states
  Bytes requested;  // the most that the tensors of a step take
  Bytes reserved;   // the most that the allocator reserves for them
};

class PriceBook {
 public:
  // `identity`: all that the prices depend on. An empty folder means prices/ in the state folder. A
  // file that cannot be read has no prices.
  explicit PriceBook(const Json& identity, const std::filesystem::path& folder = {});

  // Form::techniques is 0 in all of them.
  [[nodiscard]] const std::map<Stage, StagePrice>& prices() const { return prices_; }
  void add(Stage stage, const StagePrice& price);
  // Adds what is new to the file. A state folder that cannot be written is no error: the next plan
  // takes longer.
  void save();

 private:
  std::filesystem::path file_;
  std::string identity_;
  std::map<Stage, StagePrice> prices_;
  bool is_changed_ = false;
};

}  // namespace headroom::plan
