#include "tests/nets/training.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/on.h"

namespace headroom::nets {
namespace {

using Json = nlohmann::json;

Sizes sizes_of(const Json& object) {
  return Sizes(object.get<std::map<std::string, double>>());
}

Precision precision_of(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "bf16") return Precision::bf16;
  if (name == "autocast") return Precision::autocast;
  throw std::invalid_argument("no precision '" + name + "'");
}

std::vector<Case> read_cases() {
  std::ifstream file(HEADROOM_NETS_CASES);
  const Json document = Json::parse(file);
  std::vector<Case> cases;
  for (const Json& object : document.at("cases"))
    cases.push_back({object.at("name"), object.at("net"), precision_of(object.at("precision")),
                     object.at("optimizer"), sizes_of(object.at("real")),
                     sizes_of(object.at("small"))});
  return cases;
}

// Modules are made in the default type.
class DefaultTypeScope {
 public:
  explicit DefaultTypeScope(torch::Dtype type) : before_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultTypeScope() { c10::set_default_dtype(before_); }
  DefaultTypeScope(const DefaultTypeScope&) = delete;
  DefaultTypeScope& operator=(const DefaultTypeScope&) = delete;

 private:
  const caffe2::TypeMeta before_;
};

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> all = read_cases();
  return all;
}

const Case& case_named(const std::string& name) {
  for (const Case& one : cases())
    if (one.name == name) return one;
  throw std::out_of_range("no case '" + name + "'");
}

Training::Training(const Case& of, const Sizes& sizes, c10::Device device,
                   std::optional<c10::Device> second_half)
    : precision_(of.precision), device_(device) {
  const DefaultTypeScope type(floats());
  net_ = libtorch::on(device, [&] { return make_net(of.net, sizes, second_half); });
  optimizer_ = make_optimizer(of.optimizer, net_->parameters());
}

std::vector<Tensor> Training::state() const {
  std::vector<Tensor> all = net_->parameters();
  for (const Tensor& buffer : net_->buffers()) all.push_back(buffer);
  return all;
}

Tensor Training::loss(const Batch& batch) const {
  if (precision_ != Precision::autocast) return net_->loss(batch);
  const libtorch::AutocastScope scope(device_.type(), at::kBFloat16);
  return net_->loss(batch);
}

Tensor Training::step(const Batch& batch) const {
  Tensor value = loss(batch);
  value.backward();
  optimizer_->step();
  optimizer_->zero_grad();
  return value;
}

void train(const Training& training, const Batch& batch, int steps) {
  Tensor value;
  for (int step = 0; step < steps; ++step) {
    value = training.loss(batch);
    value.backward();
    training.optimizer().step();
    training.optimizer().zero_grad();
  }
}

}  // namespace headroom::nets
