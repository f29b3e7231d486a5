#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>

#include "headroom/libtorch/autograd_engine.h"
#include "headroom/python/bindings/engine_module.h"
#include "headroom/recipe/recipe.h"
#include "headroom/recipe/result.h"
#include "headroom/train/step.h"

namespace headroom::python {
namespace {

namespace py = pybind11;

// A recipe and its step, which refers to it.
class Training {
 public:
  Training(const std::vector<std::string>& settings, const std::vector<std::string>& devices)
      : recipe_(std::make_unique<recipe::Recipe>(
            recipe::make(settings, {devices.begin(), devices.end()}))),
        step_(std::make_unique<train::Step>(recipe_->team, recipe_->step)) {}

  double step() {
    const libtorch::EngineMeanwhile ours;
    return step_->run(recipe_->batches.next()).loss();
  }
  [[nodiscard]] std::int64_t steps() const { return recipe_->steps; }
  [[nodiscard]] std::int64_t done() const { return step_->steps(); }
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> all;
    std::set<std::string> names;  // the copy of a tied weight is not the weight
    for (const auto& stage : recipe_->model.first_replica())
      for (const auto& one : stage->module().named_parameters())
        if (names.insert(one.key()).second) all.emplace_back(one.key(), one.value());
    return all;
  }
  void save(const std::filesystem::path& folder) const { recipe::save(*recipe_, folder); }

 private:
  std::unique_ptr<recipe::Recipe> recipe_;
  std::unique_ptr<train::Step> step_;
};

}  // namespace

void add_recipe(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Training>(module, "Training")
      .def(py::init<const std::vector<std::string>&, const std::vector<std::string>&>(), Released())
      .def("step", &Training::step, Released())
      .def("steps", &Training::steps)
      .def("done", &Training::done)
      .def("parameters", &Training::parameters)
      .def("save", &Training::save, Released());
}

}  // namespace headroom::python
