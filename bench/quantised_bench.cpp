// Unpacking int8 and NF4 weights into a tile that stays in the cache, beside memcpy of as many
// floats into the same tile; and packing: with each variant of the kernels that this processor has.
// Then a linear layer over such weights beside one over floats. One thread, its CPU time, the best
// of interleaved rounds.
//
//   bench_quantised [rows of a matrix with 8,192 columns] [rounds]     default 4096 9
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "headroom/kernels/detail/isa.h"
#include "headroom/kernels/packed.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/quantise.h"

namespace {

using namespace headroom;
using namespace headroom::kernels;

constexpr std::int64_t kColumns = 8192, kTileRows = 32;  // 1 MiB of floats

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Way {
  std::string name;
  std::function<void()> run;
  double best = std::numeric_limits<double>::infinity();
};

std::function<void()> copying(const at::Tensor& from, const at::Tensor& tile) {
  return [from, tile] {
    for (std::int64_t row = 0; row < from.size(0); row += kTileRows)
      std::memcpy(tile.mutable_data_ptr(), from.const_data_ptr<float>() + row * kColumns,
                  tile.nbytes());
  };
}

std::function<void()> unpacking(const Packed& from, const at::Tensor& tile) {
  return [from, tile] {
    for (std::int64_t row = 0; row < from.rows; row += kTileRows) unpack(from, row, 0, tile);
  };
}

std::vector<Way> ways_of(const at::Tensor& weight, std::int64_t rows) {
  const at::Tensor tile = at::empty({kTileRows, kColumns});
  std::vector<Way> ways{{"memcpy of as many floats", copying(weight, tile)}};
  const auto add = [&](std::string name, std::function<void()> run) {
    ways.push_back({std::move(name), std::move(run)});
  };
  for (const Format format : {Format::nf4, Format::int8}) {
    const std::string name = format == Format::nf4 ? "NF4" : "int8";
    const Packed packed = make_packed(format, rows, kColumns, at::kCPU);
    pack(weight, packed);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      add(name + " to " + c10::toString(type), unpacking(packed, tile.to(type)));
    add(name + ", packing floats", [weight, packed] { pack(weight, packed); });
  }
  return ways;
}

void measure(std::vector<Way>& ways, long rounds) {
  for (long round = 0; round < rounds; ++round)
    for (Way& way : ways) {
      const double begin = cpu_seconds();
      way.run();
      way.best = std::min(way.best, cpu_seconds() - begin);
    }
}

void print(const std::vector<Way>& ways, double numbers) {
  for (const Way& way : ways)
    std::printf("  %-28s %6.3f ns a number  %5.2f x memcpy\n", way.name.c_str(),
                way.best / numbers * 1e9, way.best / ways[0].best);
}

void compare_layers(std::int64_t width, std::int64_t rows, long rounds) {
  const at::Tensor input = at::randn({rows, width});
  std::vector<Way> ways;
  const auto add = [&](const char* name, std::optional<Format> format) {
    auto layer = std::make_shared<nn::Linear>(width, width, false);
    layer->weight.requires_grad_(false);
    if (format) nn::quantise(*layer, {.format = *format});
    ways.push_back({std::string(name) + ", forward", [layer, input] {
                      const torch::NoGradGuard no_gradients;
                      (*layer)(input);
                    }});
    ways.push_back({std::string(name) + ", both ways", [layer, input] {
                      (*layer)(input.detach().requires_grad_()).sum().backward();
                    }});
  };
  add("float", std::nullopt);
  add("NF4", Format::nf4);
  add("int8", Format::int8);
  measure(ways, rounds);
  std::printf("A linear layer of %lld x %lld over %lld rows\n", static_cast<long long>(width),
              static_cast<long long>(width), static_cast<long long>(rows));
  for (std::size_t i = 0; i < ways.size(); ++i)
    std::printf("  %-28s %6.1f ms  %5.2f x float\n", ways[i].name.c_str(), ways[i].best * 1e3,
                ways[i].best / ways[i % 2].best);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const std::int64_t rows = given(1, 4096) / kTileRows * kTileRows;
  at::set_num_threads(1);
  const at::Tensor weight = at::randn({rows, kColumns});
  constexpr struct {
    Isa isa;
    const char* name;
  } kVariants[] = {{Isa::plain, "plain"}, {Isa::avx2, "AVX2"}, {Isa::avx512, "AVX-512"}};
  for (const auto& [isa, name] : kVariants) {
    if (!has(isa)) continue;
    const IsaScope scope(isa);
    std::vector<Way> ways = ways_of(weight, rows);
    measure(ways, given(2, 9));
    std::printf("%s: a matrix of %lld x %lld in tiles of %lld rows\n", name,
                static_cast<long long>(rows), static_cast<long long>(kColumns),
                static_cast<long long>(kTileRows));
    print(ways, static_cast<double>(rows * kColumns));
  }
  compare_layers(4096, 512, given(2, 9));
}
