// A model that is packed as it is read, from a file that takes no room on the disk: on a simulated
// card without data nothing but the packed weights is ever allocated, and little on the host.
//
// HEADROOM_SPARSE_13B=1: Llama 2 13B, 24 GiB of bfloat16 (`make sparse-13b`).
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/host_memory.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/quantise.h"
#include "headroom/sim/simulate.h"
#include "tests/weights/stored_models.h"

namespace headroom::weights {
namespace {

using namespace literals;

model::ModelConfig llama(int words, int width, int inner, int layers) {
  return config_from(R"({"model_type":"llama","vocab_size":)" + std::to_string(words) +
                     R"(,"num_attention_heads":)" + std::to_string(width / 128) +
                     R"(,"hidden_size":)" + std::to_string(width) + R"(,"intermediate_size":)" +
                     std::to_string(inner) + R"(,"num_hidden_layers":)" + std::to_string(layers) +
                     "}");
}

std::shared_ptr<Model> made(const model::ModelConfig& config, c10::Device device) {
  return libtorch::on(device, at::kBFloat16, [&] {
    const nn::WithoutMemoryScope scope;
    return build(config);
  });
}

// All zeros, of which the disk holds none.
Bytes write_sparse(const std::filesystem::path& path, Model& model) {
  Json head;
  std::int64_t end = 0;
  for (const auto& [name, tensor] : parameters_of(model)) {
    const std::int64_t begin = end;
    end += 2 * tensor.numel();
    head[name] = {
        {"dtype", "BF16"}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  const std::string start = file_of(head.dump(), "");
  std::ofstream(path, std::ios::binary) << start;
  std::filesystem::resize_file(path, start.size() + static_cast<std::uintmax_t>(end));
  return Bytes{end};
}

Bytes status(const char* key) {
  return kib_field(read_file("/proc/self/status").value(), key).value();
}

// Starts the process's peak anew.
void reset_host_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

void read_sparse(const model::ModelConfig& config, const nn::QuantiseOptions& options,
                 Bytes most_on_host) {
  const sim::Simulation box = sim::simulate("80GiB");
  const Folder folder;
  const Bytes stored = write_sparse(folder / "model.safetensors", *made(config, box.device(0)));
  const auto model = made(config, box.device(0));
  reset_host_peak();
  const Bytes before = status("VmRSS:");
  const Loaded loaded = load(*model, folder.path(), {.quantise = options});
  const Bytes host = status("VmHWM:") - before;
  const auto card = box.card(0).statistics().allocated_bytes.all;
  EXPECT_EQ(loaded.bytes, stored);
  EXPECT_GT(loaded.packed, 0U);
  EXPECT_LT(ratio(Bytes{card.current}, stored), 0.4);
  EXPECT_LE(Bytes{card.peak}, Bytes{card.current} + 64_MiB);
  EXPECT_LE(host, most_on_host);
  std::printf("%s in the file: %s on the card, %s at its peak; %s more on the host\n",
              to_string(stored).c_str(), to_string(Bytes{card.current}).c_str(),
              to_string(Bytes{card.peak}).c_str(), to_string(host).c_str());
}

TEST(SparseFile, IsPackedAsItIsRead) {
  const nn::QuantiseOptions formats[] = {{}, {.nested = false}};
  for (const nn::QuantiseOptions& options : formats)
    read_sparse(llama(4096, 1024, 2816, 12), options, 64_MiB);
}

TEST(SparseFile, Of13BLiesWholeNowhere) {
  if (!environment("HEADROOM_SPARSE_13B")) GTEST_SKIP() << "try make sparse-13b";
  read_sparse(llama(32000, 5120, 13824, 40), {}, 2_GiB);
}

}  // namespace
}  // namespace headroom::weights
