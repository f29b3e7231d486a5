// How files of transformers and bitsandbytes (0.50.2) keep a quantised weight: the names beside it,
// and the description of a 4-bit one. It does not use LibTorch.
//
//   model.layers.0.mlp.up_proj.weight                               codes
//   model.layers.0.mlp.up_proj.weight.absmax                        4 bit: a scale for 64 numbers
//   model.layers.0.mlp.up_proj.weight.quant_map                     the numbers of the 16 codes
//   model.layers.0.mlp.up_proj.weight.nested_absmax                 scales of 8-bit scales, and
//   model.layers.0.mlp.up_proj.weight.nested_quant_map              the numbers of their 256 codes
//   model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4 JSON: Nf4State
//   model.layers.0.mlp.up_proj.SCB                                  8 bit: a scale a row
//   model.layers.0.mlp.up_proj.weight_format                        0: row by row
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::weights::detail {

inline constexpr std::int64_t kNf4Block = 64, kNestedBlock = 256;

inline constexpr const char* kAbsmax = ".absmax";
inline constexpr const char* kQuantMap = ".quant_map";
inline constexpr const char* kNestedAbsmax = ".nested_absmax";
inline constexpr const char* kNestedQuantMap = ".nested_quant_map";
inline constexpr const char* kNf4State = ".quant_state.bitsandbytes__nf4";
inline constexpr const char* kFp4State = ".quant_state.bitsandbytes__fp4";
// Of Headroom's own files only: the codes are those of the weight's transpose.
inline constexpr const char* kTransposed = ".transposed";

// The names of an 8-bit weight's scales and of its layout: beside the weight, not below it.
[[nodiscard]] std::string scb_of(const std::string& weight);
[[nodiscard]] std::string format_of(const std::string& weight);

// The names of the weights, one of which a tensor of this name describes; none for other names.
[[nodiscard]] std::vector<std::string> described_by(const std::string& name);

struct Nf4State {
  std::string type;                 // that it is dequantised to: "bfloat16"
  std::vector<std::int64_t> shape;  // of the weight
  bool is_nested = false;
  double offset = 0;  // of nested scales
};
[[nodiscard]] std::string to_json(const Nf4State& state);
// `source` names the tensor in errors. Throws InputError for what is not NF4 in blocks of 64 with
// scales in blocks of 256.
[[nodiscard]] Nf4State nf4_state_from(std::string_view json, const std::string& source);

}  // namespace headroom::weights::detail
