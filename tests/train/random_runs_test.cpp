// Whole runs drawn from seeds, on cards whose memory comes and goes: long batches, neighbours,
// refusals and cut budgets. No run may die, no sample may be lost or trained twice, and no bit may
// differ from a run on an unlimited card that is given the same plan for each step. RandomTeams are
// the same with replicas and stages on cards of different sizes, one of which is in trouble.
//
//   HEADROOM_SURVIVE_RUNS=1000   runs in all, of one card and of several; 50 by default
//   HEADROOM_SURVIVE_SEED=17     only this one
//
// Each run has a process of its own: plans are priced before a process runs backward.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/child.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/split.h"
#include "headroom/train/trainer.h"
#include "tests/oracle/dice.h"
#include "text_net.h"

namespace headroom::train {
namespace {

using namespace literals;
using oracle::Dice;

std::optional<std::int64_t> asked_for(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? std::nullopt : to_integer(text);
}

constexpr int kGroups = 10;
constexpr TextSizes kThin{.vocabulary = 500, .width = 64, .dropout = 0.1};

// ---- What is trained

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kThin.width})));
    up = register_module("up", torch::nn::Linear(kThin.width, 4 * kThin.width));
    down = register_module("down", torch::nn::Linear(4 * kThin.width, kThin.width));
    dropout = register_module("dropout", torch::nn::Dropout(kThin.dropout));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + dropout(down(torch::gelu(up(norm(x)))));
  }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

torch::nn::Sequential stack(std::int64_t blocks) {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Embedding(kThin.vocabulary, kThin.width));
  for (std::int64_t i = 0; i < blocks; ++i) net->push_back(Block());
  net->push_back(torch::nn::Linear(kThin.width, kThin.vocabulary));
  return net;
}

// What is trained on the cards of a box: a net on one, or a stack on several.
class Made {
 public:
  explicit Made(Training one) : alone_(std::move(one)) {}
  Made(const torch::nn::Sequential& net, const SplitOptions& options)
      : split_(std::in_place, net, options) {
    for (const c10::Device device : options.devices) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      generator.set_current_seed(static_cast<std::uint64_t>(device.index()));
    }
  }

  // Calling it again makes other optimizers.
  [[nodiscard]] Team team() {
    if (alone_) return {{{*alone_->module, *alone_->optimizer, alone_->objective}}};
    return split_->team(
        [](const Tensors& parameters) {
          return optim::make_adamw(parameters, {.form = optim::OptimizerForm::fused});
        },
        [](const at::Tensor& output, const Tensors& rows) {
          return torch::nn::functional::cross_entropy(output.flatten(0, 1), rows[1].flatten());
        });
  }
  [[nodiscard]] Tensors everything() {
    if (alone_) return train::everything(*alone_);
    Tensors all;
    for (std::size_t rank = 0; rank < split_->ranks(); ++rank) {
      for (const at::Tensor& one : split_->stage(rank).parameters()) {
        EXPECT_FALSE(one.grad().defined());
        all.push_back(one.detach().cpu().clone());
        all.push_back(at::globalContext().defaultGenerator(one.device()).get_state());
      }
      optim::Optimizer& optimizer = split_->optimizer(rank);
      for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
        for (const auto& [name, state] : optimizer.state(i)) all.push_back(state.cpu().clone());
    }
    return all;
  }

 private:
  std::optional<Training> alone_;
  std::optional<Split> split_;
};

// A net, the cards that share it, and the size of its inputs: words of a text, or pixels of a side.
struct Course {
  std::string net;
  int replicas = 1, stages = 1;
  plan::Pipeline pipeline = plan::Pipeline::one_by_one;
  std::int64_t blocks = 0;  // of a stack
  std::int64_t rows = 0, epochs = 0;
  std::vector<std::int64_t> lengths;  // of each batch of an epoch
  StepOptions step;
  std::uint64_t seed = 0;

  [[nodiscard]] std::int64_t per_epoch() const { return std::ssize(lengths); }
  [[nodiscard]] std::int64_t steps() const { return epochs * per_epoch(); }
  [[nodiscard]] std::int64_t longest() const {
    return *std::max_element(lengths.begin(), lengths.end());
  }
  [[nodiscard]] int cards() const { return replicas * stages; }
  // The rows of the largest replica.
  [[nodiscard]] std::int64_t of_replica() const { return (rows + replicas - 1) / replicas; }
  [[nodiscard]] std::unique_ptr<Made> make(const sim::Simulation& box) const {
    const c10::Device device = box.device(0);
    if (net == "transformer") return std::make_unique<Made>(transformer(device));
    if (net == "convolutions") return std::make_unique<Made>(convolutions(device));
    if (net == "text") return std::make_unique<Made>(text(device, {}, kThin));
    SplitOptions options{.replicas = replicas, .pipeline = pipeline};
    for (int card = 0; card < cards(); ++card) options.devices.push_back(box.device(card));
    return std::make_unique<Made>(stack(blocks), options);
  }
  [[nodiscard]] Tensors batch(std::int64_t length, std::uint64_t number) const {
    const auto chance = at::detail::createCPUGenerator(1000 * seed + number);
    if (net == "convolutions")
      return {torch::randn({rows, 3, length, length}, chance), torch::randint(5, {rows}, chance)};
    const std::int64_t words = net == "transformer" ? 11 : kThin.vocabulary;
    return {torch::randint(words, {rows, length}, chance),
            torch::randint(words, {rows, length}, chance)};
  }
  // The batches of an epoch, again and again.
  [[nodiscard]] Tensors batch(std::int64_t at) const {
    const std::int64_t in_epoch = at % per_epoch();
    return batch(lengths[static_cast<std::size_t>(in_epoch)], static_cast<std::uint64_t>(in_epoch));
  }
};

Course course_of(std::uint64_t seed, Dice& dice, bool on_several) {
  Course course{.net = dice.pick({"transformer", "convolutions", "text"}), .seed = seed};
  if (on_several) {
    course.net = "stack";
    course.stages = static_cast<int>(dice.between(1, 3));
    course.replicas = static_cast<int>(dice.between(course.stages == 1 ? 2 : 1, 3));
    if (dice.one_in(3)) course.pipeline = plan::Pipeline::gpipe;
    course.blocks = dice.between(2, 5);
  }
  const bool has_pixels = course.net == "convolutions";
  course.rows = dice.between(5, 24);
  const std::int64_t length = has_pixels ? dice.between(9, 28) : dice.between(6, 24);
  course.epochs = dice.between(1, 3);
  for (std::int64_t left = dice.between(4, 7); left > 0; --left) {
    const double longer = static_cast<double>(
        dice.between(5, course.net == "text" || course.net == "stack" ? 20 : 8));
    const double factor =
        dice.one_in(6) ? (has_pixels ? std::sqrt(longer) : longer) : 0.8 + 0.4 * dice.fraction();
    course.lengths.push_back(std::llround(factor * static_cast<double>(length)));
  }
  course.step = {.max_grad_norm = dice.pick({0.0, 0.5}),
                 .ladder = {.min_micro_batch = dice.between(1, 2),
                            .room = {.least = 1_MiB, .share = 0.05},
                            .techniques = dice.one_in(2) ? plan::rung_names()
                                                         : std::set<std::string>{"checkpointing",
                                                                                 "fused_loss"}},
                 .plan = {.micro_batch = dice.one_in(3) ? course.of_replica() / 2 : 0},
                 .prices = !dice.one_in(3),
                 .grow_after = dice.between(1, 4)};
  return course;
}

// ---- How much memory it needs

// Of each card.
struct Need {
  std::vector<Bytes> whole, least;          // each batch at once, and in the smallest parts
  std::int64_t requests = 0, in_least = 0;  // of a step
};

sim::Simulation box_of(const std::vector<Bytes>& cards, sim::Mode mode) {
  gpu::SimulatedBox box;
  for (const Bytes card : cards) box.cards.push_back({.name = "card", .total = card});
  return sim::simulate(box, {.mode = mode});
}

std::vector<Bytes> without_limit(const Course& course) {
  return std::vector<Bytes>(static_cast<std::size_t>(course.cards()), 1024_GiB);
}

// Of a step with the longest batch, after one with the shortest: bytes of each card, and requests
// of the card with the most.
std::pair<std::vector<Bytes>, std::int64_t> measured(const Course& course, const Plan& plan) {
  const sim::Simulation box = box_of(without_limit(course), sim::Mode::shape_only);
  StepOptions options = course.step;
  options.prices = options.adapts = false;
  options.plan = plan;
  const auto made = course.make(box);
  Step step(made->team(), options);
  const auto requests = [&] {
    std::uint64_t most = 0;
    for (int card = 0; card < course.cards(); ++card)
      most = std::max(most, box.card(card).requests());
    return static_cast<std::int64_t>(most);
  };
  const auto shortest = *std::min_element(course.lengths.begin(), course.lengths.end());
  std::int64_t before = 0;
  for (const std::int64_t length : {shortest, course.longest()}) {
    before = requests();
    static_cast<void>(step.run(course.batch(length, 0)));
  }
  std::vector<Bytes> bytes;
  for (int card = 0; card < course.cards(); ++card)
    bytes.push_back(memory::get_gpu_memory_stats(box.device(card)).max_reserved);
  return {bytes, requests() - before};
}

Need need_of(const Course& course) {
  const std::string text = sim::in_child([&] {
    std::ostringstream out;
    for (const std::int64_t micro_batch : {std::int64_t{0}, course.step.ladder.min_micro_batch}) {
      const auto [bytes, requests] = measured(course, {.micro_batch = micro_batch});
      for (const Bytes card : bytes) out << card.count << " ";
      out << requests << " ";
    }
    return out.str();
  });
  Need need;
  std::istringstream in(text);
  const auto read = [&](std::vector<Bytes>& bytes, std::int64_t& requests) {
    bytes.resize(static_cast<std::size_t>(course.cards()));
    for (Bytes& card : bytes) in >> card.count;
    in >> requests;
  };
  read(need.whole, need.requests);
  read(need.least, need.in_least);
  return need;
}

// ---- What happens to it

struct Trouble {
  std::vector<Bytes> cards;
  int where = 0;  // the card that it happens to
  sim::Injector injector;
  sim::Lift lift;
  // After a step: what others have of the card, and the share that the process may use.
  std::map<std::int64_t, Bytes> neighbours;
  std::map<std::int64_t, double> budgets;
  std::string words;
};

// At any time the smallest parts fit: what others take, and what a budget cuts, is of the rest.
Trouble trouble_of(const Course& course, const Need& need, Dice& dice) {
  Trouble trouble;
  std::ostringstream words;
  const auto floor_of = [&](std::size_t card) {
    return need.least[card] + need.least[card] / 8 + 8_MiB;
  };
  const auto share_of = [&](double share, Bytes bytes) {
    return Bytes{std::llround(share * static_cast<double>(bytes.count))};
  };
  words << course.net << ", " << course.replicas << " x " << course.stages << ", " << course.rows
        << " rows, " << course.steps() << " steps";
  for (std::size_t card = 0; card < need.least.size(); ++card) {
    const Bytes floor = floor_of(card);
    const Bytes most = std::max(need.whole[card] + need.whole[card] / 8, floor + 8_MiB);
    const double size = dice.fraction();  // small ones more often
    trouble.cards.push_back(floor + share_of(0.05 + 0.95 * size * size, most - floor));
    words << ", " << to_string(trouble.cards.back()) << " (needs " << to_string(need.least[card])
          << " to " << to_string(need.whole[card]) << ")";
  }
  trouble.where = course.cards() > 1 ? static_cast<int>(dice.below(need.least.size())) : 0;
  const Bytes card = trouble.cards[static_cast<std::size_t>(trouble.where)];
  const Bytes floor = floor_of(static_cast<std::size_t>(trouble.where));
  const Bytes spare = card - floor;
  if (course.cards() > 1) words << "; on card " << trouble.where;

  const std::int64_t requests = need.requests * course.steps();
  const auto some_request = [&] { return static_cast<std::uint64_t>(dice.between(1, requests)); };
  std::vector<sim::Injector> injectors;
  double left = 1;  // of what is spare, for neighbours
  if (dice.one_in(2)) {
    const double taken = dice.fraction();
    left -= taken;
    const double share = taken * static_cast<double>(spare.count) / static_cast<double>(card.count);
    const std::uint64_t comes = some_request(), goes = comes + some_request();
    injectors.push_back(sim::neighbour({{comes, share}, {goes, share / 2}}));
    words << "; a neighbour of " << to_string(share_of(taken, spare)) << " at request " << comes;
  }
  if (!dice.one_in(3)) {
    const std::int64_t comes = dice.between(1, course.steps());
    const Bytes taken = share_of(left * dice.fraction(), spare);
    trouble.neighbours = {{comes, taken}, {comes + dice.between(1, 5), Bytes{}}};
    words << "; one of " << to_string(taken) << " after step " << comes;
  }
  if (dice.one_in(2)) {
    const double least = static_cast<double>(floor.count) / static_cast<double>(card.count);
    const std::int64_t step = dice.between(1, course.steps());
    trouble.budgets = {{step, least + (1 - least) * dice.fraction()}};
    if (dice.one_in(2)) trouble.budgets[step + dice.between(1, 5)] = 1;
    words << "; a budget of " << trouble.budgets[step] << " after step " << step;
  }
  switch (dice.below(5)) {
    case 0:  // Rarely more than one in an attempt, even in one of the smallest parts.
      injectors.push_back(
          sim::randomly(0.05 / static_cast<double>(need.in_least), dice.below(1 << 20)));
      words << "; random refusals";
      break;
    case 1:
      for (std::int64_t times = dice.between(1, 3); times > 0; --times) {
        injectors.push_back(sim::once(some_request()));
        words << "; a refusal";
      }
      break;
    case 2: {
      const std::uint64_t n = 3 * static_cast<std::uint64_t>(need.in_least) + dice.below(1000);
      injectors.push_back(sim::every(n, some_request()));
      words << "; every " << n << "th request refused";
      break;
    }
    case 3: {
      const std::uint64_t k = some_request();
      injectors.push_back(sim::lasting(k, trouble.lift));
      words << "; lasting refusals from request " << k;
      break;
    }
    default:
      break;
  }
  trouble.injector = sim::any_of(injectors);
  trouble.words = words.str();
  return trouble;
}

// ---- The run

struct Record {
  std::vector<std::int64_t> given;  // numbers of batches
  std::vector<Plan> plans;          // of the steps that were committed
  std::vector<double> losses;
  std::int64_t rows = 0;
  Trained trained;
  Tensors all;
  std::vector<std::string> complaints;
};

// A refusal lasts until the run does something else about it, or has nothing left to do.
void lift_after(const Event& event, const sim::Lift& lift, const Course& course) {
  if (event.kind != Event::Kind::oom && event.kind != Event::Kind::retry) lift.now();
  if (event.kind == Event::Kind::oom &&
      largest_part(event.from, course.of_replica()) <= course.step.ladder.min_micro_batch)
    lift.now();
}

Batches batches_of(const Course& course, std::vector<std::int64_t>& given) {
  const auto at = std::make_shared<std::int64_t>(0);
  return {.next =
              [&course, &given, at] {
                given.push_back(*at);
                return course.batch((*at)++);
              },
          .per_epoch = course.per_epoch(),
          .position = [at] { return std::to_string(*at); },
          .go_to = [at](const std::string& place) { *at = std::stoll(place); }};
}

Record run_with(const Course& course, const Trouble& trouble, Dice dice) {
  const sim::Simulation box = box_of(trouble.cards, sim::Mode::compute);
  sim::Card& card = box.card(trouble.where);
  Record record;
  TrainerOptions options{.step = course.step,
                         .epochs = course.epochs,
                         .evaluate_every = dice.pick({std::int64_t{0}, std::int64_t{3}}),
                         .check_memory_every = dice.between(1, 5),
                         .clear_cache_every = dice.pick({std::int64_t{0}, std::int64_t{3}})};
  options.listener.on_event = [&](const Event& event) {
    lift_after(event, trouble.lift, course);
    if (asked_for("HEADROOM_SURVIVE_SEED")) std::fprintf(stderr, "%s\n", to_string(event).c_str());
  };
  options.listener.on_step = [&](const Progress& now) {
    record.plans.push_back(now.committed.plan);
    record.losses.push_back(now.loss);
    record.rows += now.committed.rows;
    if (const auto found = trouble.neighbours.find(now.step); found != trouble.neighbours.end())
      card.set_used_by_others(std::min(found->second, card.free_bytes()));
    if (const auto found = trouble.budgets.find(now.step); found != trouble.budgets.end())
      card.set_memory_fraction(found->second);
  };
  options.listener.on_evaluation = [&](const Evaluated& result, std::int64_t) {
    if (result.rows != course.rows * course.per_epoch())
      record.complaints.push_back("an evaluation of " + std::to_string(result.rows) + " rows");
  };
  std::optional<Batches> evaluation;
  std::vector<std::int64_t> evaluated;
  if (dice.one_in(2)) evaluation = batches_of(course, evaluated);
  const auto made = course.make(box);
  Trainer trainer(made->team(), batches_of(course, record.given), options, evaluation);
  const sim::InjectionScope scope(card, trouble.injector);
  record.trained = trainer.run();
  static_cast<void>(card.inject({}));
  card.set_used_by_others({});
  card.set_memory_fraction(1);
  record.all = made->everything();
  return record;
}

// The same batches and plans on cards without a limit.
Record clean_run(const Course& course, const std::vector<Plan>& plans) {
  const sim::Simulation box = box_of(without_limit(course), sim::Mode::compute);
  StepOptions options = course.step;
  options.prices = options.adapts = false;
  options.ladder.max_retries = 0;
  const auto made = course.make(box);
  Step step(made->team(), options);
  Record record;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    step.set_plan(plans[i]);
    record.losses.push_back(step.run(course.batch(static_cast<std::int64_t>(i))).loss());
  }
  record.all = made->everything();
  return record;
}

void compare(const Course& course, Record& ours) {
  const auto check = [&](bool is_right, const std::string& complaint) {
    if (!is_right) ours.complaints.push_back(complaint);
  };
  const std::int64_t steps = course.steps();
  check(ours.trained.steps == steps && std::ssize(ours.plans) == steps,
        std::to_string(ours.trained.steps) + " steps, " + std::to_string(ours.plans.size()) +
            " committed");
  check(ours.rows == steps * course.rows && ours.trained.rows == ours.rows,
        std::to_string(ours.rows) + " rows");
  // The first batch is looked at once more, to price the plans.
  std::vector<std::int64_t> in_order{0};
  for (std::int64_t i = 0; i < steps; ++i) in_order.push_back(i);
  check(ours.given == in_order, "batches out of order");
  const Record right = clean_run(course, ours.plans);
  for (std::size_t i = 0; i < right.losses.size(); ++i)
    check(ours.losses[i] == right.losses[i], "another loss in step " + std::to_string(i + 1));
  check(ours.all.size() == right.all.size(), "another number of tensors");
  for (std::size_t i = 0; i < std::min(ours.all.size(), right.all.size()); ++i)
    check(torch::equal(ours.all[i], right.all[i]), "another tensor " + std::to_string(i));
}

// What went wrong, and how eventful the run was.
Json report_of(const Course& course, const Trouble& trouble, const Dice& dice) {
  return parse_json(sim::in_child([&] {
                      Record ours;
                      try {
                        ours = run_with(course, trouble, dice);
                        compare(course, ours);
                      } catch (const std::exception& error) {
                        const std::string why = error.what();
                        ours.complaints.push_back("died: " + why.substr(0, why.find('\n')));
                      }
                      Json report{{"complaints", ours.complaints}};
                      for (const Event& event : ours.trained.events)
                        report["events"].push_back(to_string(event.kind));
                      return to_line(report);
                    }),
                    "the child");
}

// ---- Many of them

class Random : public ::testing::TestWithParam<int> {
 protected:
  explicit Random(bool on_several) : on_several_(on_several) {}

  void survive(std::uint64_t seed) {
    Dice dice(seed);
    const Course course = course_of(seed, dice, on_several_);
    const Trouble trouble = trouble_of(course, need_of(course), dice);
    SCOPED_TRACE("HEADROOM_SURVIVE_SEED=" + std::to_string(seed) + ": " + trouble.words);
    const Json report = report_of(course, trouble, dice);
    EXPECT_THAT(report.at("complaints").get<std::vector<std::string>>(), ::testing::IsEmpty());
    if (!report.contains("events")) return;
    for (const Json& event : report.at("events")) ++events_[event.get<std::string>()];
  }

  void survive_some() {
    if (const auto seed = asked_for("HEADROOM_SURVIVE_SEED")) {
      if (GetParam() == 0) survive(static_cast<std::uint64_t>(*seed));
      return;
    }
    const std::int64_t runs = asked_for("HEADROOM_SURVIVE_RUNS").value_or(50);
    for (std::int64_t i = GetParam(); i < runs; i += kGroups)
      survive(static_cast<std::uint64_t>(i));
    for (const auto& [kind, count] : events_) RecordProperty(kind, count);
    // The runs are worth something only if memory did run out.
    EXPECT_GT(events_["oom"], 0);
  }

 private:
  const bool on_several_;
  std::map<std::string, int> events_;
};

struct RandomRuns : Random {
  RandomRuns() : Random(/*on_several=*/false) {}
};
struct RandomTeams : Random {
  RandomTeams() : Random(/*on_several=*/true) {}
};

TEST_P(RandomRuns, LoseNoStepNoSampleAndNoBit) {
  survive_some();
}
TEST_P(RandomTeams, LoseNoStepNoSampleAndNoBit) {
  survive_some();
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, ::testing::Range(0, kGroups));
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTeams, ::testing::Range(0, kGroups));

}  // namespace
}  // namespace headroom::train
