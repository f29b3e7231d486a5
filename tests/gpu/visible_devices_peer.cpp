// Answers visible_devices.py: what Headroom makes of one CUDA_VISIBLE_DEVICES after the other.
//
// Arguments: the UUIDs of equal cards. Each line of the input is a value; each line of the output
// the positions of the cards CUDA sees, with commas.
#include <iostream>
#include <string>

#include "headroom/base/text.h"
#include "headroom/gpu/cuda_order.h"

int main(int argc, char** argv) {
  headroom::gpu::Machine machine;
  for (int i = 1; i < argc; ++i) {
    machine.cards.emplace_back();
    machine.cards.back().index = i - 1;
    machine.cards.back().uuid = headroom::gpu::Uuid::from_driver(argv[i]);
  }
  std::string value;
  while (std::getline(std::cin, value)) {
    std::vector<std::string> positions;
    for (const std::size_t position :
         cuda_view(machine, {.device_order = {}, .visible_devices = value}).cards)
      positions.push_back(std::to_string(position));
    std::cout << headroom::join(positions, ",") << '\n';
  }
}
