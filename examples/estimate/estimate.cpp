// Estimates the memory that training a module of your own needs. It needs neither a GPU nor the
// memory.
//
//   estimate [ROWS] [CARD]        estimate 64 "RTX 3080"
#include <headroom/base/error.h>
#include <headroom/dryrun/describe.h>
#include <headroom/estimate/own_module.h>
#include <torch/torch.h>

#include <iostream>

namespace nn = torch::nn;

int main(int argc, char** argv) try {
  const long rows = argc > 1 ? std::stol(argv[1]) : 64;
  const auto card = headroom::dryrun::card_for(argc > 2 ? argv[2] : "RTX 4090");

  nn::TransformerEncoder net(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(512, 8), 6));
  const torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto batch_of = [](std::int64_t count) { return torch::randn({1024, count, 512}); };

  const auto report =
      headroom::estimate::estimate_memory(*net, batch_of, rows, card, {.optimizer = &optimizer});
  std::cout << headroom::dryrun::describe(report);
  return report.fits() ? 0 : 2;
} catch (const headroom::Error& error) {
  std::cerr << error.what() << "\n";
  return 64;
}
