#include "programs.h"

namespace headroom::coverage {

Cases convolution_cases() {
  using C1 = nn::Conv1dOptions;
  using C2 = nn::Conv2dOptions;
  using C3 = nn::Conv3dOptions;
  using T1 = nn::ConvTranspose1dOptions;
  using T2 = nn::ConvTranspose2dOptions;
  using T3 = nn::ConvTranspose3dOptions;
  return {
      {"Conv1d", "", on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 3))},
      {"Conv1d", "without bias", on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 3).bias(false))},
      {"Conv1d", "of one sequence", on_x<nn::Conv1d>({4, 9}, C1(4, 6, 3))},
      {"Conv1d", "in groups", on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 3).groups(2).stride(2))},
      {"Conv1d", "dilated", on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 3).dilation(2).padding(1))},
      {"Conv1d", "of the same size",
       on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 4).padding(torch::kSame))},
      {"Conv1d", "reflecting",
       on_x<nn::Conv1d>({2, 4, 9}, C1(4, 6, 3).padding(2).padding_mode(torch::kReflect))},
      {"Conv2d", "", on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3))},
      {"Conv2d", "without bias", on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).bias(false))},
      {"Conv2d", "of one image", on_x<nn::Conv2d>({4, 9, 9}, C2(4, 6, 3))},
      {"Conv2d", "of a batch of one", on_x<nn::Conv2d>({1, 3, 7, 5}, C2(3, 5, 3).padding(1))},
      {"Conv2d", "of no image", on_x<nn::Conv2d>({0, 4, 9, 9}, C2(4, 6, 3))},
      {"Conv2d", "pointwise", on_x<nn::Conv2d>({2, 4, 5, 7}, C2(4, 6, 1))},
      {"Conv2d", "in groups", on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).groups(2))},
      {"Conv2d", "depthwise", on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 4, 3).groups(4).padding(1))},
      {"Conv2d", "in strides", on_x<nn::Conv2d>({2, 4, 10, 9}, C2(4, 6, {3, 5}).stride({2, 3}))},
      {"Conv2d", "dilated", on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).dilation(2).padding(2))},
      {"Conv2d", "of the same size",
       on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 4).padding(torch::kSame))},
      {"Conv2d", "of what is valid",
       on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).padding(torch::kValid))},
      {"Conv2d", "reflecting",
       on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).padding(1).padding_mode(torch::kReflect))},
      {"Conv2d", "replicating",
       on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).padding(1).padding_mode(torch::kReplicate))},
      {"Conv2d", "circular",
       on_x<nn::Conv2d>({2, 4, 9, 9}, C2(4, 6, 3).padding(1).padding_mode(torch::kCircular))},
      {"Conv2d", "frozen",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::Conv2d>(C2(4, 6, 3));
         module->weight.requires_grad_(false);
         return module->forward(t.x({2, 4, 9, 9}));
       }},
      {"Conv2d", "of pixels",
       [](Trial& t) {
         return t.forward<nn::Conv2d>(C2(4, 6, 3), t.constant({2, 4, 9, 9}));
       }},
      {"Conv3d", "", on_x<nn::Conv3d>({2, 4, 5, 6, 7}, C3(4, 6, 3))},
      {"Conv3d", "without bias", on_x<nn::Conv3d>({2, 4, 5, 6, 7}, C3(4, 6, 3).bias(false))},
      {"Conv3d", "in groups",
       on_x<nn::Conv3d>({1, 4, 5, 6, 7}, C3(4, 6, {1, 3, 3}).groups(2).stride(2).padding(1))},
      {"ConvTranspose1d", "", on_x<nn::ConvTranspose1d>({2, 4, 9}, T1(4, 6, 3))},
      {"ConvTranspose1d", "in strides",
       on_x<nn::ConvTranspose1d>({2, 4, 9}, T1(4, 6, 3).stride(2).output_padding(1).bias(false))},
      {"ConvTranspose2d", "", on_x<nn::ConvTranspose2d>({2, 4, 5, 6}, T2(4, 6, 3))},
      {"ConvTranspose2d", "without bias",
       on_x<nn::ConvTranspose2d>({2, 4, 5, 6}, T2(4, 6, 3).bias(false))},
      {"ConvTranspose2d", "in strides",
       on_x<nn::ConvTranspose2d>({2, 4, 5, 6}, T2(4, 6, 4).stride(2).padding(1))},
      {"ConvTranspose2d", "in groups",
       on_x<nn::ConvTranspose2d>({2, 4, 5, 6}, T2(4, 6, 3).groups(2).dilation(2))},
      {"ConvTranspose2d", "to a size",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::ConvTranspose2d>(T2(4, 6, 3).stride(2));
         const std::vector<std::int64_t> size = {12, 14};
         return module->forward(t.x({2, 4, 5, 6}), at::IntArrayRef(size));
       }},
      {"ConvTranspose3d", "", on_x<nn::ConvTranspose3d>({2, 4, 3, 4, 5}, T3(4, 6, 3))},
      {"ConvTranspose3d", "in strides",
       on_x<nn::ConvTranspose3d>({2, 4, 3, 4, 5}, T3(4, 6, 3).stride(2).groups(2))},
      {"Fold", "", on_x<nn::Fold>({2, 12, 12}, nn::FoldOptions({4, 5}, {2, 2}))},
      {"Fold", "of one image", on_x<nn::Fold>({12, 9}, nn::FoldOptions({6, 6}, {2, 2}).stride(2))},
      {"Unfold", "", on_x<nn::Unfold>({2, 3, 6, 7}, nn::UnfoldOptions({2, 3}))},
      {"Unfold", "padded",
       on_x<nn::Unfold>({2, 3, 6, 7}, nn::UnfoldOptions({2, 3}).padding(1).stride(2).dilation(2))},
      {"PixelShuffle", "", on_x<nn::PixelShuffle>({2, 8, 3, 5}, nn::PixelShuffleOptions(2))},
      {"PixelUnshuffle", "", on_x<nn::PixelUnshuffle>({2, 3, 4, 6}, nn::PixelUnshuffleOptions(2))},
  };
}

}  // namespace headroom::coverage
