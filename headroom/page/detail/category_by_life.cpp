#include "headroom/page/detail/category_by_life.h"

namespace headroom::page::detail {

trace::Category category_by_life(const Timeline& timeline, const TensorLife& tensor) {
  const trace::Phase made = phase_at(timeline, tensor.born);
  const bool lives_on = tensor.died == timeline.instants();
  const trace::Phase freed = lives_on ? trace::Phase::unknown : phase_at(timeline, tensor.died);
  const bool outlives_step =
      lives_on || step_at(timeline, tensor.died) != step_at(timeline, tensor.born);
  switch (made) {
    case trace::Phase::init:
      return freed == trace::Phase::init ? trace::Category::temporary : trace::Category::parameter;
    case trace::Phase::data:
      return trace::Category::input;
    case trace::Phase::forward:
      return freed == trace::Phase::forward && !outlives_step ? trace::Category::temporary
                                                              : trace::Category::activation;
    case trace::Phase::backward:
      return outlives_step || freed == trace::Phase::optimizer ? trace::Category::gradient
                                                               : trace::Category::temporary;
    case trace::Phase::optimizer:
      return outlives_step ? trace::Category::optimizer : trace::Category::temporary;
    default:
      return step_at(timeline, tensor.born) == 0 && outlives_step ? trace::Category::parameter
                                                                  : trace::Category::temporary;
  }
}

}  // namespace headroom::page::detail
