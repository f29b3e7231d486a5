// Finds the largest batch with which a module of your own trains on a card of the catalogue.
//
//   largest_batch [CARD]        largest_batch "RTX 3080"
#include <headroom/base/error.h>
#include <headroom/dryrun/dry_run.h>
#include <headroom/estimate/find_max_batch_size.h>
#include <torch/torch.h>

#include <iostream>

int main(int argc, char** argv) try {
  const std::string card = argc > 1 ? argv[1] : "RTX 4090";
  torch::nn::TransformerEncoder net(
      torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(512, 8), 6));

  const auto batch_of = [](std::int64_t rows) { return torch::randn({1024, rows, 512}); };
  const auto found = headroom::estimate::find_max_batch_size(
      *net, batch_of, headroom::dryrun::card_for(card), 1, 4096);

  if (!found.size) return 2;
  std::cout << card << ": a batch of " << *found.size << " fits, " << *found.size + 1
            << " does not; " << *found.recommended << " leaves 10 % (" << found.dry_probes.size()
            << " dry runs)\n";
} catch (const headroom::Error& error) {
  std::cerr << error.what() << "\n";
  return 64;
}
