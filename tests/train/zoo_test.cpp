// Memory runs out at every request of two rounds of each training in the zoo, once or until the
// plan gets smaller, with prices and without. The end must equal that of a clean run that is given
// the committed plans, to the bit, in every tensor that training changes: other networks, averages,
// counters and rows as well.
//
//   HEADROOM_ZOO=1    every request; without it some 12 of each priced training
//
// Plans are priced before a process runs backward. So the process of a priced test prepares the
// steps, and each run is a child of it.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "zoo.h"

namespace headroom::train {
namespace {

struct ZooOutcome {
  std::vector<Plan> plans;     // committed
  std::uint64_t requests = 0;  // in all rounds
  int ooms = 0;
  std::string values;  // of everything
};

class Cage {
 public:
  Cage(const Species& species, bool is_priced)
      : box_(sim::simulate("1GiB", {.mode = sim::Mode::compute})) {
    at::set_num_threads(1);  // fork copies one
    StepOptions options{.max_grad_norm = 0.5, .prices = is_priced, .adapts = false};
    options.on_event = [this](const Event& event) { hear(event); };
    animal_ = species.make(box_.device(0), options);
    for (const auto& step : animal_.steps) {
      step->prepare(animal_.batches.front());
      EXPECT_EQ(step->prices() != nullptr, is_priced) << step->why_unpriced();
    }
    torch::manual_seed(6);
  }

  // Two rounds. The steps begin with these plans, if there are any.
  ZooOutcome run(const sim::Injector& injector, const std::vector<Plan>& plans,
                 const sim::Lift& lift) {
    lift_ = lift;
    return train(injector, plans);
  }

  // The same in a child.
  [[nodiscard]] ZooOutcome run_in_child(const sim::Injector& injector,
                                        const std::vector<Plan>& plans, const sim::Lift& lift) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      write_all(ends[1], text_of(run(injector, plans, lift)), "a pipe");
      ::_exit(0);
    }
    ::close(ends[1]);
    std::string text;
    std::array<char, 4096> buffer;  // NOLINT: filled by read before use
    for (ssize_t got = 1; got > 0;) {
      got = ::read(ends[0], buffer.data(), buffer.size());
      if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return outcome_from(text);
  }

 private:
  void hear(const Event& event) {
    ooms_ += event.kind == Event::Kind::oom ? 1 : 0;
    if (event.kind == Event::Kind::shrink || event.kind == Event::Kind::technique) lift_.now();
  }

  // One that ran out of plans has not begun: it runs again, when there is memory.
  Committed run_until_it_commits(Step& step, const Tensors& batch) const {
    try {
      return step.run(batch);
    } catch (const c10::OutOfMemoryError&) {
      lift_.now();
      return step.run(batch);
    }
  }

  ZooOutcome train(const sim::Injector& injector, const std::vector<Plan>& plans) {
    ZooOutcome outcome;
    const std::uint64_t before = box_.card(0).requests();
    const sim::InjectionScope scope(box_.card(0), injector);
    for (const Tensors& batch : animal_.batches)
      for (const auto& step : animal_.steps) {
        if (!plans.empty()) step->set_plan(plans.at(outcome.plans.size()));
        outcome.plans.push_back(run_until_it_commits(*step, batch).plan);
      }
    outcome.requests = box_.card(0).requests() - before;
    outcome.ooms = ooms_;
    for (const torch::Tensor& tensor : animal_.everything())
      outcome.values.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
    return outcome;
  }

  static std::string text_of(const ZooOutcome& outcome) {
    Json plans = Json::array();
    for (const Plan& plan : outcome.plans) plans.push_back(to_json(plan));
    return Json{{"requests", outcome.requests}, {"ooms", outcome.ooms}, {"plans", plans}}.dump() +
           "\n" + outcome.values;
  }
  static ZooOutcome outcome_from(const std::string& text) {
    const std::size_t end = text.find('\n');
    const Json head = Json::parse(text.substr(0, end));
    ZooOutcome outcome{.requests = head.at("requests"), .ooms = head.at("ooms")};
    for (const Json& plan : head.at("plans")) outcome.plans.push_back(plan_from(plan, "a child"));
    outcome.values = text.substr(end + 1);
    return outcome;
  }

  sim::Simulation box_;
  Animal animal_;
  sim::Lift lift_;
  int ooms_ = 0;
};

struct ZooCase {
  Species species;
  bool is_priced;
};

void PrintTo(const ZooCase& one, std::ostream* out) {
  *out << one.species.name << (one.is_priced ? ", priced" : ", not priced");
}

class Zoo : public ::testing::TestWithParam<ZooCase> {
 public:
  Zoo() {
    if (GetParam().is_priced) priced_.emplace(GetParam().species, true);
  }
  ZooOutcome run(const sim::Injector& injector, const std::vector<Plan>& plans = {},
                 const sim::Lift& lift = {}) {
    if (priced_) return priced_->run_in_child(injector, plans, lift);
    return Cage(GetParam().species, false).run(injector, plans, lift);
  }
  // Between the requests that are refused, one after another.
  [[nodiscard]] static std::uint64_t stride(std::uint64_t requests) {
    if (std::getenv("HEADROOM_ZOO") != nullptr) return 1;  // NOLINT(concurrency-mt-unsafe)
    return GetParam().is_priced ? requests / 12 + 1 : 1;
  }

 private:
  std::optional<Cage> priced_;
};

TEST_P(Zoo, SurvivesASpuriousRefusalOfEachRequestUnchanged) {
  const ZooOutcome right = run(sim::any_of({}));
  EXPECT_GT(right.requests, 50U);
  for (std::uint64_t k = 1; k <= right.requests && !HasFailure(); k += stride(right.requests)) {
    SCOPED_TRACE("request " + std::to_string(k));
    const ZooOutcome ours = run(sim::once(k));
    EXPECT_EQ(ours.ooms, 1);
    EXPECT_EQ(ours.plans, right.plans);
    EXPECT_TRUE(ours.values == right.values);
  }
}

TEST_P(Zoo, EndsALastingRefusalOfEachRequestAsACleanRunWithItsPlans) {
  const std::uint64_t requests = run(sim::any_of({})).requests;
  std::map<std::string, ZooOutcome> clean;  // by plans
  for (std::uint64_t k = 1; k <= requests && !HasFailure(); k += stride(requests)) {
    SCOPED_TRACE("request " + std::to_string(k));
    const sim::Lift lift;
    const ZooOutcome ours = run(sim::lasting(k, lift), {}, lift);
    EXPECT_GE(ours.ooms, 1);
    std::string plans;
    for (const Plan& plan : ours.plans) plans += to_string(plan) + "; ";
    if (!clean.contains(plans)) clean.emplace(plans, run(sim::any_of({}), ours.plans));
    EXPECT_EQ(ours.plans, clean.at(plans).plans);
    EXPECT_TRUE(ours.values == clean.at(plans).values) << plans;
  }
}

std::vector<ZooCase> zoo_cases() {
  std::vector<ZooCase> all;
  for (const auto* species : {&zoo(), &zoo_of_models()})
    for (const Species& one : *species)
      for (const bool is_priced : {false, true}) all.push_back({one, is_priced});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Zoo, ::testing::ValuesIn(zoo_cases()), [](const auto& of) {
  return std::string(of.param.species.name) + (of.param.is_priced ? "_priced" : "");
});

}  // namespace
}  // namespace headroom::train
