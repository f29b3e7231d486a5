// What cuDNN 9.19 (LibTorch 2.11) allocated on an H100 for recurrent networks: every seventh of 260
// cases.
#pragma once

#include <vector>

#include "headroom/sim/rules/rnn.h"

namespace headroom::sim {

struct MeasuredRnn {
  rules::RnnShape shape;
  at::ScalarType type;
  std::int64_t reserve;  // 0: in inference, which has none
  std::int64_t workspace;
};

inline std::vector<MeasuredRnn> measured_rnns() {
  using M = rules::RnnMode;
  // clang-format off
  return {
    {{.mode = M::lstm, .input = 64, .hidden = 64, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 102656, 8986944},
    {{.mode = M::lstm, .input = 64, .hidden = 128, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 205056, 9695552},
    {{.mode = M::lstm, .input = 64, .hidden = 64, .layers = 3, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 348416, 26059072},
    {{.mode = M::lstm, .input = 64, .hidden = 64, .steps = 300, .batch = 8, .rows = 2400}, at::kFloat, 3072256, 22053184},
    {{.mode = M::lstm, .input = 64, .hidden = 64, .steps = 10, .batch = 128, .rows = 1280}, at::kFloat, 1638656, 15992064},
    {{.mode = M::gru, .input = 100, .hidden = 64, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 123136, 8971328},
    {{.mode = M::gru, .input = 64, .hidden = 300, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 576256, 10172288},
    {{.mode = M::gru, .input = 64, .hidden = 64, .steps = 1, .batch = 8, .rows = 8}, at::kFloat, 12544, 8540480},
    {{.mode = M::gru, .input = 64, .hidden = 64, .steps = 10, .batch = 3, .rows = 30}, at::kFloat, 46336, 8645408},
    {{.mode = M::gru, .input = 64, .hidden = 64, .steps = 10, .batch = 8, .rows = 80}, at::kHalf, 61696, 8649024},
    {{.mode = M::relu, .input = 64, .hidden = 1, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 576, 8454688},
    {{.mode = M::relu, .input = 64, .hidden = 650, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 208256, 11222304},
    {{.mode = M::relu, .input = 64, .hidden = 64, .steps = 5, .batch = 8, .rows = 40}, at::kFloat, 10496, 8587584},
    {{.mode = M::relu, .input = 64, .hidden = 64, .steps = 10, .batch = 20, .rows = 200}, at::kFloat, 51456, 9220512},
    {{.mode = M::relu, .input = 64, .hidden = 64, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 0, 8573248},
    {{.mode = M::tanh, .input = 64, .hidden = 100, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 32256, 8930688},
    {{.mode = M::tanh, .input = 64, .hidden = 64, .layers = 2, .steps = 10, .batch = 8, .rows = 80}, at::kFloat, 61696, 17195328},
    {{.mode = M::tanh, .input = 64, .hidden = 64, .steps = 100, .batch = 8, .rows = 800}, at::kFloat, 205056, 11505984},
    {{.mode = M::tanh, .input = 64, .hidden = 64, .steps = 10, .batch = 64, .rows = 640}, at::kFloat, 164096, 10978048},
    {{.mode = M::lstm, .input = 512, .hidden = 256, .layers = 3, .steps = 28, .batch = 16, .rows = 233, .packed = true}, at::kHalf, 2028288, 29460736},
    {{.mode = M::lstm, .input = 300, .hidden = 256, .layers = 3, .directions = 2, .steps = 28, .batch = 20, .rows = 560}, at::kFloat, 19497216, 77686688},
    {{.mode = M::lstm, .input = 50, .hidden = 32, .layers = 3, .directions = 2, .steps = 28, .batch = 8, .rows = 224}, at::kBFloat16, 487680, 50761280},
    {{.mode = M::lstm, .input = 256, .hidden = 1024, .layers = 3, .directions = 2, .steps = 35, .batch = 100, .rows = 1731, .packed = true}, at::kBFloat16, 0, 224338176},
    {{.mode = M::lstm, .input = 50, .hidden = 32, .layers = 2, .steps = 200, .batch = 8, .rows = 1600}, at::kHalf, 1126656, 19133504},
    {{.mode = M::lstm, .input = 300, .hidden = 64, .steps = 64, .batch = 128, .rows = 8192}, at::kHalf, 0, 35642624},
    {{.mode = M::lstm, .input = 50, .hidden = 1024, .layers = 2, .directions = 2, .steps = 64, .batch = 100, .rows = 6400}, at::kBFloat16, 288358656, 295454752},
    {{.mode = M::lstm, .input = 28, .hidden = 100, .layers = 2, .steps = 35, .batch = 64, .rows = 2240}, at::kFloat, 9856256, 36779264},
    {{.mode = M::lstm, .input = 128, .hidden = 32, .layers = 2, .steps = 200, .batch = 20, .rows = 4000}, at::kBFloat16, 2816256, 20477856},
    {{.mode = M::gru, .input = 300, .hidden = 32, .layers = 2, .steps = 35, .batch = 32, .rows = 580, .packed = true}, at::kFloat, 965376, 17699264},
    {{.mode = M::gru, .input = 50, .hidden = 100, .layers = 2, .directions = 2, .steps = 64, .batch = 16, .rows = 1024}, at::kBFloat16, 5325056, 36846816},
    {{.mode = M::gru, .input = 128, .hidden = 650, .layers = 2, .directions = 2, .steps = 7, .batch = 8, .rows = 26, .packed = true}, at::kHalf, 0, 55379104},
    {{.mode = M::gru, .input = 200, .hidden = 100, .layers = 2, .directions = 2, .steps = 100, .batch = 20, .rows = 2000}, at::kFloat, 20800256, 62418848},
    {{.mode = M::gru, .input = 650, .hidden = 200, .layers = 2, .steps = 7, .batch = 100, .rows = 700}, at::kBFloat16, 3640256, 22248320},
    {{.mode = M::gru, .input = 512, .hidden = 512, .layers = 2, .directions = 2, .steps = 7, .batch = 20, .rows = 78, .packed = true}, at::kFloat, 0, 67428608},
    {{.mode = M::gru, .input = 50, .hidden = 650, .layers = 2, .steps = 28, .batch = 64, .rows = 980, .packed = true}, at::kBFloat16, 16562272, 28898688},
    {{.mode = M::gru, .input = 256, .hidden = 512, .directions = 2, .steps = 128, .batch = 16, .rows = 2048}, at::kHalf, 25166080, 47939968},
    {{.mode = M::gru, .input = 50, .hidden = 1024, .layers = 2, .steps = 100, .batch = 1, .rows = 100}, at::kHalf, 2662656, 36810592},
    {{.mode = M::lstm, .input = 64, .hidden = 64, .layers = 2, .steps = 10, .batch = 8, .rows = 80, .dropout = true}, at::kFloat, 226176, 17543488},
    {{.mode = M::gru, .input = 64, .hidden = 64, .layers = 2, .steps = 10, .batch = 8, .rows = 80, .dropout = true}, at::kFloat, 267136, 17428800},
  };
  // clang-format on
}

}  // namespace headroom::sim
