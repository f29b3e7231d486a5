// Will a small transformer train on this card? A dry run answers within milliseconds, and needs
// neither a GPU nor the memory.
//
//   will_it_fit [CARD] [BATCH]        will_it_fit "RTX 3080" 16
#include <headroom/base/error.h>
#include <headroom/dryrun/describe.h>
#include <headroom/dryrun/dry_run.h>
#include <headroom/libtorch/on.h>
#include <torch/torch.h>

#include <iostream>

namespace dryrun = headroom::dryrun;
namespace nn = torch::nn;

struct ClassifierImpl : nn::Module {
  ClassifierImpl() {
    embedding = register_module("embedding", nn::Embedding(50257, 768));
    encoder = register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                             nn::TransformerEncoderLayerOptions(768, 12), 12)));
    head = register_module("head", nn::Linear(768, 2));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return head(encoder(embedding(tokens)).mean(0));
  }
  nn::Embedding embedding{nullptr};
  nn::TransformerEncoder encoder{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Classifier);

int main(int argc, char** argv) try {
  const std::string card = argc > 1 ? argv[1] : "RTX 4090";
  const long batch = argc > 2 ? std::stol(argv[2]) : 16;

  const auto report = dryrun::dry_run(card, [&](c10::Device device) {
    auto net = headroom::libtorch::on(device, [] { return Classifier(); });
    const auto adam = std::make_shared<torch::optim::AdamW>(net->parameters());
    const auto tokens = torch::zeros({512, batch}, torch::device(device).dtype(torch::kLong));
    const auto labels = torch::zeros({batch}, torch::device(device).dtype(torch::kLong));

    auto loss = [](ClassifierImpl& model, const std::vector<torch::Tensor>& parts) {
      return nn::functional::cross_entropy(model.forward(parts[0]), parts[1]);
    };
    dryrun::Subject subject = dryrun::subject_of(*net, std::vector{tokens, labels}, loss, *adam);
    subject.keeps = {net.ptr(), adam};
    return subject;
  });

  std::cout << card << ", batch " << batch << ", found in " << report.took_s * 1000 << " ms\n"
            << dryrun::describe(report);
  return report.fits() ? 0 : 2;
} catch (const headroom::Error& error) {
  std::cerr << error.what() << "\n";
  return 64;
}
