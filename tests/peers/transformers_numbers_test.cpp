// Compares the results of our models with those of transformers' models with the same weights
// (transformers_numbers.py, which stored transformers_numbers.json).
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/sim/simulate.h"
#include "headroom/weights/safetensors.h"
#include "tests/peers/formula_values.h"
#include "tests/weights/safetensors_files.h"

namespace headroom::models {
namespace {

using at::Tensor;
using model::ModelConfig;
using model::Transformers;

constexpr std::int64_t kRows = 2, kLength = 7, kTargets = 5;

const Json& figures() {
  static const Json all =
      parse_json(read_input(HEADROOM_SOURCE_DIR "/tests/peers/transformers_numbers.json"),
                 "transformers_numbers.json");
  return all;
}

// ---- The same model and the same batch as in Python ----

ModelConfig config_of(const Json& of) {
  return ModelConfig(of["config"], of["name"].get<std::string>());
}

model::Task task_of(const Json& of) {
  using model::Task;
  for (const Task task : {Task::causal_lm, Task::masked_lm, Task::sequence_classification,
                          Task::image_classification, Task::seq2seq_lm})
    if (of["task"] == model::to_string(task)) return task;
  throw std::runtime_error("no such task");
}

Tensor mask_of(const std::string& kind) {
  if (kind == "none") return {};
  Tensor mask = at::ones({kRows, kLength}, at::kLong);
  if (kind == "left") mask[1].slice(0, 0, 3).zero_();
  if (kind == "right") mask[1].slice(0, kLength - 2).zero_();
  return mask;
}

at::ScalarType type_of(const Json& result) {
  return result["dtype"] == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

Tensor labels_of(const Json& of, const ModelConfig& config, const Tensor& mask) {
  const bool tokens =
      of["task"] != "image-classification" && of["task"] != "sequence-classification";
  const std::int64_t classes = config.labels();
  if (!tokens && of["labels"] == "real")
    return values("labels", classes == 1 ? std::vector<std::int64_t>{kRows}
                                         : std::vector<std::int64_t>{kRows, classes});
  if (!tokens) return integers("labels", {kRows}, 0, classes);
  const bool seq2seq = of["task"] == "seq2seq-lm";
  Tensor labels =
      integers("labels", {kRows, seq2seq ? kTargets : kLength}, 3, config.count("vocab_size"));
  labels[0][3] = -100;
  return mask.defined() && !seq2seq ? labels.masked_fill(mask == 0, -100) : labels;
}

Batch batch_of(const Json& of, const ModelConfig& config, const Json& result) {
  Batch batch;
  const bool images = of["task"] == "image-classification";
  if (!images) batch.mask = mask_of(result["mask"]);
  batch.labels = labels_of(of, config, batch.mask);
  if (batch.labels.is_floating_point()) batch.labels = batch.labels.to(type_of(result));
  if (images) {
    const auto side = of["image"].get<std::int64_t>();
    batch.pixels =
        values("pixels", {kRows, config.count("num_channels"), side, side}).to(type_of(result));
    return batch;
  }
  batch.tokens = integers("tokens", {kRows, kLength}, 3, config.count("vocab_size"));
  if (batch.mask.defined())
    batch.tokens = batch.tokens.masked_fill(batch.mask == 0,
                                            config.optional_count("pad_token_id").value_or(0));
  return batch;
}

Batch moved(Batch batch, c10::Device device) {
  for (Tensor* tensor : {&batch.tokens, &batch.mask, &batch.pixels, &batch.labels})
    if (tensor->defined()) *tensor = tensor->to(device);
  return batch;
}

void set_weights(Model& model) {
  const at::NoGradGuard no_grad;
  const auto set = [](const std::string& name, Tensor tensor) {
    const Tensor numbers = values(name, tensor.sizes().vec());
    const bool around_1 =
        tensor.dim() == 1 && (name.ends_with("weight") || name.ends_with("running_var"));
    tensor.copy_(around_1 ? 1 + 0.3 * numbers : 0.4 * numbers);
  };
  for (const auto& parameter : model.module().named_parameters())
    set(parameter.key(), parameter.value());
  for (const auto& buffer : model.module().named_buffers())
    if (buffer.key().find("running_") != std::string::npos) set(buffer.key(), buffer.value());
}

std::shared_ptr<Model> model_of(const Json& of, const Json& result, Settings settings,
                                c10::Device device = at::kCPU) {
  settings.task = task_of(of);
  settings.transformers = Transformers::v4_57;
  settings.attention = result["attention"] == "sdpa" ? Attention::sdpa : Attention::eager;
  return libtorch::on(device, type_of(result), [&] { return build(config_of(of), settings); });
}

// ---- Comparing ----

double number(const Json& stored) {
  return stored.is_null() ? std::nan("") : stored.get<double>();
}

void expect_near(double ours, const Json& theirs, double tolerance, const std::string& what) {
  if (theirs.is_null())
    EXPECT_TRUE(std::isnan(ours)) << what;
  else
    EXPECT_NEAR(ours, number(theirs), tolerance) << what;
}

// The largest stored number, the measure for comparing the others.
double scale_of(const Json& numbers) {
  double most = 0;
  for (const Json& stored : numbers)
    if (!stored.is_null()) most = std::max(most, std::abs(stored.get<double>()));
  return most;
}

// In bfloat16 CPUs round sums at different places: on the one that made the figures all are equal
// to the bit.
double tolerance_of(const Json& result) {
  return type_of(result) == at::kFloat ? 1e-5 : 0.03;
}

void expect_result(const Output& output, const Json& result) {
  const Tensor logits = output.logits.detach().cpu().to(at::kDouble).flatten();
  const Json& stored = result["logits"];
  const auto count = static_cast<std::int64_t>(stored.size());
  const std::int64_t step = (logits.numel() + 31) / 32;
  ASSERT_EQ((logits.numel() + step - 1) / step, count) << "another number of logits";
  const double share = tolerance_of(result), tolerance = share * scale_of(stored);
  for (std::int64_t i = 0; i < count; ++i)
    expect_near(logits[i * step].item<double>(), stored[static_cast<std::size_t>(i)], tolerance,
                "logit " + std::to_string(i * step));
  expect_near(logits.pow(2).mean().sqrt().item<double>(), result["rms"], tolerance, "all logits");
  expect_near(output.loss.cpu().item<double>(), result["loss"], share * number(result["loss"]),
              "loss");
}

std::map<std::string, Tensor> trained_parameters(Model& model) {
  std::map<std::string, Tensor> sorted;
  for (const auto& parameter : model.module().named_parameters())
    if (parameter.value().requires_grad()) sorted[parameter.key()] = parameter.value();
  return sorted;
}

void expect_gradients(Model& model, const Json& result) {
  const Json& stored = result["gradients"];
  const auto parameters = trained_parameters(model);
  ASSERT_EQ(parameters.size(), stored.size()) << "another number of parameters";
  const double tolerance = tolerance_of(result) * scale_of(stored);
  std::size_t i = 0;
  for (const auto& [name, parameter] : parameters) {
    const Tensor& gradient = parameter.grad();
    const double norm =
        gradient.defined() ? gradient.to(at::kFloat).norm().cpu().item<double>() : 0;
    expect_near(norm, stored[i++], tolerance, "gradient of " + name);
  }
}

// For each result of each case; how many there were.
int for_each_result(const std::function<void(const Json& of, const Json& result)>& look) {
  int count = 0;
  for (const Json& of : figures()["cases"])
    for (const Json& result : of["results"]) {
      SCOPED_TRACE(of["name"].get<std::string>() + ", " + result["attention"].get<std::string>() +
                   ", mask: " + result["mask"].get<std::string>() + ", " +
                   result["dtype"].get<std::string>());
      look(of, result);
      ++count;
    }
  return count;
}

void expect_logits(const Json& of, const Json& result, const Settings& settings) {
  const at::NoGradGuard no_grad;
  const auto model = model_of(of, result, settings);
  set_weights(*model);
  model->train(false);
  expect_result(model->run(batch_of(of, model->config(), result)), result);
}

void expect_gradients(const Json& of, const Json& result, const Settings& settings) {
  if (!result.contains("gradients")) return;
  const auto model = model_of(of, result, settings);
  set_weights(*model);
  model->train();
  model->run(batch_of(of, model->config(), result)).loss.backward();
  expect_gradients(*model, result);
}

TEST(TransformersNumbers, AreOursForLogitsAndLoss) {
  const int count =
      for_each_result([](const Json& of, const Json& result) { expect_logits(of, result, {}); });
  EXPECT_GE(count, 300);
}

TEST(TransformersNumbers, AreOursWithACache) {
  for_each_result([](const Json& of, const Json& result) {
    if (result["mask"] == "left") expect_logits(of, result, {.use_cache = true});
  });
}

TEST(TransformersNumbers, AreOursForGradients) {
  for_each_result([](const Json& of, const Json& result) { expect_gradients(of, result, {}); });
}

TEST(TransformersNumbers, AreOursForGradientsWithCheckpointing) {
  for_each_result([](const Json& of, const Json& result) {
    if (of["config"]["model_type"] == "resnet" || of["config"]["model_type"] == "convnext") return;
    Settings settings;
    settings.checkpointing.how = nn::Recompute::nonreentrant;
    expect_gradients(of, result, settings);
  });
}

// Padding before the first token makes rows that see nothing. On accelerators transformers lets
// OPT's see all, because their kernels divide by zero otherwise; and what the backward pass of such
// rows gives in bfloat16 depends on the kernel. What is stored is the CPU's.
bool differs_on_cards(const Json& of, const Json& result) {
  const bool blind_rows = result["attention"] == "sdpa" && result["mask"] == "left";
  return blind_rows && (of["config"]["model_type"] == "opt" || type_of(result) == at::kBFloat16);
}

TEST(TransformersNumbers, AreOursOnASimulatedCard) {
  const auto box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute});
  for_each_result([&](const Json& of, const Json& result) {
    if (!result.contains("gradients") || differs_on_cards(of, result)) return;
    const auto model = model_of(of, result, {}, box.device(0));
    set_weights(*model);
    const Batch batch = moved(batch_of(of, model->config(), result), box.device(0));
    model->train(false);
    expect_result(model->run(batch), result);
    model->train();
    model->run(batch).loss.backward();
    expect_gradients(*model, result);
  });
}

// ---- What transformers writes ----

void expect_files(Model& model, const Json& hashes, const std::string& name) {
  const weights::Folder folder;
  weights::save(model, folder / "whole");
  weights::save(model, folder / "parts", {.shard = Bytes{figures()["shard"].get<std::int64_t>()}});
  for (const auto& [file, hash] : hashes.items()) {
    const auto path = folder / (file == "model.safetensors" ? "whole" : "parts") / file;
    EXPECT_EQ(hexadecimal(hash_of(read_input(path))), hash) << name << " " << file;
  }
}

// The same bytes: then Python reads what we write, and we read what Python writes, which the round
// trips of tests/weights/safetensors_test.cpp show of ours.
TEST(TransformersFiles, AreOursByteForByte) {
  int count = 0;
  for (const Json& of : figures()["cases"]) {
    const std::string name = of["name"];
    if (!figures()["files"].contains(name)) continue;
    const auto model = model_of(of, of["results"][0], {});
    set_weights(*model);
    expect_files(*model, figures()["files"][name], name);
    ++count;
  }
  EXPECT_EQ(count, 25);
}

// ---- What a new model begins with ----

struct Moments {
  double mean, rms, kurtosis;
};

Moments moments(const std::vector<Tensor>& tensors) {
  const Tensor all = at::stack(tensors).to(at::kDouble).flatten();
  const double mean = all.mean().item<double>();
  const Tensor from_mean = all - mean;
  const double variance = from_mean.pow(2).mean().item<double>();
  return {mean, all.pow(2).mean().sqrt().item<double>(),
          variance > 1e-14 ? from_mean.pow(4).mean().item<double>() / (variance * variance) : 0};
}

// Six standard errors of the difference of two such samples, for a distribution that is no wider in
// its tails than the normal one.
void expect_moments(const Moments& ours, const Json& theirs, double samples,
                    const std::string& name) {
  const double root = std::sqrt(samples / 2), rms = number(theirs[1]);
  EXPECT_NEAR(ours.mean, number(theirs[0]), 6 * rms / root + 1e-9) << name;
  EXPECT_NEAR(ours.rms, rms, 6 * rms / root) << name;
  EXPECT_NEAR(ours.kurtosis, number(theirs[2]), 6 * 5 / root) << name;
  const bool constant = number(theirs[2]) == 0;
  EXPECT_NEAR(ours.rms, rms, constant ? 1e-7 * rms : rms) << name;
}

TEST(InitialisedModels, AreDistributedAsTransformersAre) {
  const auto times = figures()["models"].get<std::size_t>();
  at::manual_seed(1);
  for (const Json& of : figures()["cases"]) {
    if (!figures()["initialised"].contains(of["name"])) continue;
    SCOPED_TRACE(of["name"].get<std::string>());
    const auto model = model_of(of, of["results"][0], {});
    std::map<std::string, std::vector<Tensor>> seen;
    for (std::size_t i = 0; i < times; ++i) {
      initialise(*model);
      for (const auto& parameter : model->module().named_parameters())
        seen[parameter.key()].push_back(parameter.value().detach().clone());
    }
    const Json& stored = figures()["initialised"][of["name"].get<std::string>()];
    ASSERT_EQ(seen.size(), stored.size());
    std::size_t i = 0;
    for (const auto& [name, tensors] : seen)
      expect_moments(moments(tensors), stored[i++],
                     static_cast<double>(tensors.front().numel()) * static_cast<double>(times),
                     name);
  }
}

}  // namespace
}  // namespace headroom::models
