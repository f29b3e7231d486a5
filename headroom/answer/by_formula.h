// The answer of `headroom estimate` from the closed form, and the techniques that save memory, with
// their price: in milliseconds and without tensors.
#pragma once

#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::answer {

// For the card with the least memory left; without cards, for no limit. Without advice.
[[nodiscard]] Answer by_formula(const model::NamedModel& model, const model::Settings& settings,
                                const std::vector<gpu::SimulatedCard>& cards);

// All techniques, those that save most first, on the smallest of the cards; without cards, for no
// limit and with the times of an A100.
[[nodiscard]] std::vector<plan::Saving> techniques_by_formula(
    const model::ModelConfig& config, const model::Settings& settings,
    const std::vector<gpu::SimulatedCard>& cards);
// The three best changes that help. Only changes that can run, if the settings themselves can;
// if none of these is enough, adds the others that are.
[[nodiscard]] std::vector<plan::Saving> advice_by_formula(
    const model::ModelConfig& config, const model::Settings& settings,
    const std::vector<gpu::SimulatedCard>& cards);

}  // namespace headroom::answer
