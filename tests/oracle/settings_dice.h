// Random settings, as the text of PYTORCH_CUDA_ALLOC_CONF, each accepted by PyTorch 2.11.
#pragma once

#include <string>
#include <vector>

#include "tests/oracle/dice.h"

namespace headroom::oracle {

// The classes of streams; each is about one setting, `mixed` about all, `changed` about changes
// while the program runs.
[[nodiscard]] const std::vector<std::string>& class_names();

// Settings for a stream of this class. Throws std::invalid_argument for an unknown class.
[[nodiscard]] std::string settings_for(const std::string& class_name, Dice& dice);

// A change that is accepted after any settings of class "changed". Without max_split_size_mb it
// only ever raises that, to unlimited: lowering it can meet a fault of 2.11 that ends comparisons.
[[nodiscard]] std::string settings_change(Dice& dice, bool with_max_split);

}  // namespace headroom::oracle
