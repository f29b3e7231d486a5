// The values of a model that is trained from nothing: each parameter's distribution is the one that
// transformers' `_init_weights` (4.57.6) gives to a new model of the same config - normal with
// `initializer_range`, zeros for biases, ones for norms, and what single types do otherwise.
//
//   const auto model = libtorch::on(device, [&] { return models::build(config); });
//   device.generator().set_current_seed(1);
//   models::initialise(*model);
//
// Numbers come from the default generator of the device that the weights lie on; they are not
// transformers' for the same seed, because Python draws some weights twice. Written in place: tied
// weights stay tied, and an optimizer that has the parameters already sees the new values.
#pragma once

#include <string>
#include <vector>

#include "headroom/models/model.h"

namespace headroom::models {

// All parameters, and what batch norms have counted so far. What the config fixes (positions,
// rotary frequencies) has been right since the model was built. Throws InputError for a spread
// below zero.
void initialise(Model& model);

// Only these, by their names on the hub: the new head of a trained model.
void initialise(Model& model, const std::vector<std::string>& names);

}  // namespace headroom::models
