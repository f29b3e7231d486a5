#include "headroom/trace/detail/category_by_life.h"

namespace headroom::trace::detail {

Category category_by_life(const Timeline& timeline, const TensorLife& tensor) {
  const Phase made = phase_at(timeline, tensor.born);
  const bool lives_on = tensor.died == timeline.instants();
  const Phase freed = lives_on ? Phase::unknown : phase_at(timeline, tensor.died);
  const bool outlives_step =
      lives_on || step_at(timeline, tensor.died) != step_at(timeline, tensor.born);
  switch (made) {
    case Phase::init:
      return freed == Phase::init ? Category::temporary : Category::parameter;
    case Phase::data:
      return Category::input;
    case Phase::forward:
      return freed == Phase::forward && !outlives_step ? Category::temporary : Category::activation;
    case Phase::backward:
      return outlives_step || freed == Phase::optimizer ? Category::gradient : Category::temporary;
    case Phase::optimizer:
      return outlives_step ? Category::optimizer : Category::temporary;
    default:
      return step_at(timeline, tensor.born) == 0 && outlives_step ? Category::parameter
                                                                  : Category::temporary;
  }
}

}  // namespace headroom::trace::detail
