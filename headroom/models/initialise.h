// The initial values of a model that is trained from scratch. Each parameter gets the distribution
// that transformers' `_init_weights` (4.57.6) gives to a new model of the same config: normal with
// `initializer_range`, zeros for biases, ones for norms, with exceptions for some model types.
//
//   const auto model = libtorch::on(device, [&] { return models::build(config); });
//   device.generator().set_current_seed(1);
//   models::initialise(*model);
//
// The state of the default generator of the weights' device and a parameter's name decide its
// numbers, so parts of a model on several cards get those of the whole. They are not transformers'
// for the same seed. Values are written in place: tied weights stay tied, and an optimizer that
// already has the parameters sees the new values.
#pragma once

#include <string>
#include <vector>

#include "headroom/models/model.h"

namespace headroom::models {

// Initialises all parameters, and resets the running statistics of batch norms. Values that the
// config determines (positions, rotary frequencies) are right since the model was built. Throws
// InputError for a negative spread.
void initialise(Model& model);

// Initialises only these, by their names on the hub: for example the new head of a trained model.
void initialise(Model& model, const std::vector<std::string>& names);

}  // namespace headroom::models
