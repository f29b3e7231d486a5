// Attention in all its variants, and a few ways of using operators that modules have not: they lead
// to other kernels.
#include <ATen/Context.h>

#include "programs.h"

namespace headroom::coverage {
namespace {

// Only one of the kernels for attention is allowed for a while.
class AttentionScope {
 public:
  AttentionScope(bool flash, bool efficient, bool plain) { allow(flash, efficient, plain); }
  ~AttentionScope() { allow(true, true, true); }
  AttentionScope(const AttentionScope&) = delete;
  AttentionScope& operator=(const AttentionScope&) = delete;

 private:
  static void allow(bool flash, bool efficient, bool plain) {
    at::globalContext().setSDPUseFlash(flash);
    at::globalContext().setSDPUseMemEfficient(efficient);
    at::globalContext().setSDPUseMath(plain);
    at::globalContext().setSDPUseCuDNN(flash && efficient && plain);
  }
};

struct Attention {
  std::int64_t length = 6;
  std::int64_t keys = 6;
  std::int64_t heads_of_keys = 2;
  double dropout = 0;
  bool causal = false;
  bool shared_keys = false;
  bool in_rows = false;  // however images lie
  c10::optional<double> scale = {};
};

Tensor attend(Trial& t, const Attention& how, const std::optional<Tensor>& mask = {}) {
  const Tensor query = t.x({2, 2, how.length, 8});
  const Tensor key = t.x({2, how.heads_of_keys, how.keys, 8});
  const Tensor value = t.x({2, how.heads_of_keys, how.keys, 8});
  const auto laid = [&](const Tensor& x) { return how.in_rows ? x.contiguous() : x; };
  return at::scaled_dot_product_attention(laid(query), laid(key), laid(value), mask, how.dropout,
                                          how.causal, how.scale, how.shared_keys);
}

Program attention(Attention how) {
  return [=](Trial& t) -> Outputs { return attend(t, how); };
}

Program by_kernel(Attention how, bool flash, bool efficient) {
  return [=](Trial& t) -> Outputs {
    if (t.device().is_cpu() && efficient) return attend(t, how);  // it has one of its own
    const AttentionScope scope(flash, efficient, !flash && !efficient);
    return attend(t, how);
  };
}

Cases of_attention() {
  return {
      {"at::scaled_dot_product_attention", "", attention({})},
      {"at::scaled_dot_product_attention", "causal", attention({.causal = true})},
      {"at::scaled_dot_product_attention", "across lengths", attention({.keys = 9, .scale = 0.3})},
      {"at::scaled_dot_product_attention", "with dropout", attention({.dropout = 0.3})},
      {"at::scaled_dot_product_attention", "with shared keys",
       attention({.heads_of_keys = 1, .shared_keys = true})},
      {"at::scaled_dot_product_attention", "masked",
       [](Trial& t) -> Outputs {
         return attend(t, {}, t.put(torch::ones({6, 6}, at::kBool).tril()));
       }},
      {"at::scaled_dot_product_attention", "biased",
       [](Trial& t) -> Outputs {
         return attend(t, {}, t.constant({2, 2, 6, 6}));
       }},
      {"at::scaled_dot_product_attention", "biased with gradient",
       [](Trial& t) -> Outputs {
         return attend(t, {}, t.x({2, 2, 6, 6}));
       }},
      {"at::scaled_dot_product_attention", "plain", by_kernel({.causal = true}, false, false)},
      {"at::scaled_dot_product_attention", "memory-efficient",
       by_kernel({.causal = true, .in_rows = true}, false, true)},
      {"at::scaled_dot_product_attention", "in one tensor",
       [](Trial& t) -> Outputs {
         const auto parts =
             t.x({2, 6, 48}).view({2, 6, 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
         return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true)
             .transpose(1, 2)
             .reshape({2, 6, 16});
       }},
  };
}

Cases of_views() {
  return {
      {"at::add", "of a transposed tensor",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({3, 4});
         return x.t() + t.x({4, 1});
       }},
      {"at::mul", "by a number",
       [](Trial& t) -> Outputs {
         return t.x({3, 4}) * 2;
       }},
      {"at::mul", "into a slice",
       [](Trial& t) -> Outputs {
         Tensor x = t.inner({4, 6});
         x.slice(1, 1, 4).mul_(3);
         return x;
       }},
      {"at::cat", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({3, 4});
         return torch::cat({x, t.x({2, 4})});
       }},
      {"at::mm", "of transposed tensors",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({4, 3});
         return x.t().mm(t.x({5, 4}).t());
       }},
      {"at::matmul", "of batches",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({2, 3, 4, 5});
         return x.matmul(t.x({5, 6}));
       }},
      {"at::einsum", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({2, 3, 4});
         return torch::einsum("bij,bjk->bik", {x, t.x({2, 4, 5})});
       }},
      {"at::std", "",
       [](Trial& t) -> Outputs {
         return t.x({3, 4}).std(1);
       }},
      {"at::cumsum", "",
       [](Trial& t) -> Outputs {
         return t.x({3, 4}).cumsum(1);
       }},
      {"at::topk", "",
       [](Trial& t) -> Outputs {
         return t.x({3, 6}).topk(2);
       }},
      {"at::sort", "",
       [](Trial& t) -> Outputs {
         return t.x({3, 6}).sort(1);
       }},
      {"at::gather", "",
       [](Trial& t) -> Outputs {
         return t.x({3, 6}).gather(1, t.below(6, {3, 2}));
       }},
      {"at::index", "",
       [](Trial& t) -> Outputs {
         return t.x({5, 6}).index({t.below(5, {4})});
       }},
      {"at::masked_fill", "",
       [](Trial& t) -> Outputs {
         const Tensor x = t.x({5, 6});
         return x.masked_fill(t.put(torch::ones({5, 6}, at::kBool).tril()), 3);
       }},
  };
}

}  // namespace

Cases operator_cases() {
  Cases all = of_attention();
  for (Case& one : of_views()) all.push_back(std::move(one));
  return all;
}

}  // namespace headroom::coverage
