// The plan of a step (plan/plan.h), under the name that trainings know it by.
#pragma once

#include "headroom/plan/plan.h"

namespace headroom::train {

using plan::PartLimits;
using plan::Plan;

}  // namespace headroom::train
