// The plan of a step (plan/plan.h), under the name that trainings know it by.
#pragma once

#include "headroom/plan/plan.h"

namespace headroom::train {

using plan::micro_batches;
using plan::PartLimits;
using plan::Plan;
using plan::plan_from;

}  // namespace headroom::train
