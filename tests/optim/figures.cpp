#include "tests/optim/figures.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headroom/model/run_settings.h"

namespace headroom::optim {
namespace {

using nlohmann::json;

at::Tensor values(at::IntArrayRef sizes, const std::function<double(double)>& value) {
  at::Tensor made = at::empty(sizes, at::kDouble);
  for (std::int64_t k = 0; k < made.numel(); ++k)
    made.data_ptr<double>()[k] = value(static_cast<double>(k));
  return made;
}

void set(double& field, const json& options, const char* name) {
  field = options.value(name, field);
}

template <typename Options>
void set_common(Options& options, const json& given) {
  set(options.learning_rate, given, "lr");
  set(options.weight_decay, given, "weight_decay");
}

template <typename Options>
Options adams(const json& given, OptimizerForm form) {
  Options options;
  set_common(options, given);
  set(options.epsilon, given, "eps");
  options.amsgrad = given.value("amsgrad", false);
  options.form = form;
  if (!given.contains("betas")) return options;
  options.beta1 = given["betas"][0];
  options.beta2 = given["betas"][1];
  return options;
}

SgdOptions sgds(const json& given, OptimizerForm form) {
  SgdOptions options;
  set_common(options, given);
  set(options.momentum, given, "momentum");
  set(options.dampening, given, "dampening");
  options.nesterov = given.value("nesterov", false);
  options.form = form;
  return options;
}

RmsPropOptions rmsprops(const json& given, OptimizerForm form) {
  RmsPropOptions options;
  set_common(options, given);
  set(options.alpha, given, "alpha");
  set(options.epsilon, given, "eps");
  set(options.momentum, given, "momentum");
  options.centered = given.value("centered", false);
  options.form = form;
  return options;
}

AdafactorOptions adafactors(const json& given, OptimizerForm form) {
  AdafactorOptions options;
  set_common(options, given);
  set(options.beta2_decay, given, "beta2_decay");
  set(options.clip, given, "d");
  options.form = form;
  if (!given.contains("eps")) return options;
  options.epsilon1 = given["eps"][0].get<double>();
  options.epsilon2 = given["eps"][1];
  return options;
}

AdafactorHfOptions hugging_faces(const json& given) {
  AdafactorHfOptions options;
  if (given.contains("lr")) options.learning_rate = given["lr"].get<double>();
  if (given.contains("beta1")) options.beta1 = given["beta1"].get<double>();
  set(options.clip_threshold, given, "clip_threshold");
  set(options.weight_decay, given, "weight_decay");
  options.scale_parameter = given.value("scale_parameter", true);
  options.relative_step = given.value("relative_step", true);
  options.warmup_init = given.value("warmup_init", false);
  return options;
}

}  // namespace

const json& figures() {
  static const json document = [] {
    std::ifstream file(HEADROOM_SOURCE_DIR "/tests/peers/optimizers.json");
    return json::parse(file);
  }();
  return document;
}

const json& trained_case(const std::string& name) {
  for (const json& one : figures().at("trained"))
    if (one.at("name") == name) return one;
  throw std::out_of_range("no case '" + name + "'");
}

std::vector<at::Tensor> start(at::ScalarType type, c10::Device device) {
  std::vector<at::Tensor> parameters;
  for (const json& sizes : figures().at("shapes")) {
    const auto i = static_cast<double>(parameters.size());
    const at::Tensor made = values(sizes.get<std::vector<std::int64_t>>(),
                                   [i](double k) { return std::cos(1.7 * i + 0.9 * k) / 2; });
    parameters.push_back(made.to(type).to(device).requires_grad_());
  }
  return parameters;
}

void set_gradients(const std::vector<at::Tensor>& parameters, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    const at::Tensor made = values(parameter.sizes(), [&](double k) {
      return std::cos(0.7 * static_cast<double>(i) + 0.3 * k + 1.1 * step);
    });
    parameter.mutable_grad() = made.to(parameter.scalar_type()).to(parameter.device());
  }
}

std::unique_ptr<Optimizer> optimizer_of(const json& one, std::vector<at::Tensor> parameters) {
  const json& options = one.at("options");
  const auto form = model::choice<OptimizerForm>(one.at("form").get<std::string>());
  const std::string kind = one.at("kind");
  if (kind == "SGD") return make_sgd(std::move(parameters), sgds(options, form));
  if (kind == "Adam") return make_adam(std::move(parameters), adams<AdamOptions>(options, form));
  if (kind == "AdamW") return make_adamw(std::move(parameters), adams<AdamWOptions>(options, form));
  if (kind == "RMSprop") return make_rmsprop(std::move(parameters), rmsprops(options, form));
  if (kind == "Adafactor") return make_adafactor(std::move(parameters), adafactors(options, form));
  return make_adafactor_hf(std::move(parameters), hugging_faces(options));
}

std::unique_ptr<Optimizer> trained(const json& one, c10::Device device) {
  auto optimizer =
      optimizer_of(one, start(one.at("dtype") == "bfloat16" ? at::kBFloat16 : at::kFloat, device));
  for (int step = 0; step < figures().at("steps").get<int>(); ++step) {
    set_gradients(optimizer->parameters(), step);
    optimizer->step();
  }
  return optimizer;
}

void expect_equal(const at::Tensor& ours, const json& theirs, double tolerance) {
  const at::Tensor flat = ours.detach().cpu().to(at::kDouble).reshape({-1});
  const auto expected = theirs.get<std::vector<double>>();
  ASSERT_EQ(flat.numel(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(flat.data_ptr<double>()[k], expected[k], tolerance) << "element " << k;
}

std::vector<at::Tensor> on_cpu(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& one : all) copies.push_back(one.detach().to(at::kCPU).clone());
  return copies;
}

void expect_near(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs,
                 double tolerance) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (tolerance == 0)
      EXPECT_TRUE(at::equal(ours[i], theirs[i])) << "parameter " << i;
    else
      EXPECT_LE((ours[i] - theirs[i]).to(at::kFloat).norm().item<double>(),
                tolerance * theirs[i].to(at::kFloat).norm().item<double>())
          << "parameter " << i;
  }
}

}  // namespace headroom::optim
