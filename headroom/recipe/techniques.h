// The engine's half of techniques: a file in techniques/ defines `void NAME(models::Model&, const
// model::Settings&)`, which puts a new model into the form of the technique NAME of
// Settings::techniques (plan/technique.h), before weights are read and adapters are added. CMake
// finds the files.
#pragma once

#include "headroom/model/run_settings.h"
#include "headroom/models/model.h"

namespace headroom::recipe {

// Throws UsageError for a technique that is none.
void put_into_form(models::Model& model, const model::Settings& settings);

}  // namespace headroom::recipe
