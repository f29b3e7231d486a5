// A weight that has no memory itself: a store keeps its values in another form, such as 4 bit
// (nn/quantise.h). The weight stays its module's parameter, with name, sizes, type and device, and
// the layer's code stays as it is:
//
//   keep_in(net->fc->weight, std::make_shared<MyStore>(...));
//   net->forward(x);          // the store computes the product
//
// The store computes
//   at::linear; matmul, mm and addmm with weight.t() or with the weight as it is
//   at::_grouped_mm with a weight of three dimensions, transposed or not
// in the type that autocast would choose, or else in the type of the input. copy_ into the weight
// goes to the store, and so does every other in-place operator. clone and moves make a new weight
// with a store of its own; a change of type changes the type that the weight seems to have. Every
// other operator gets the whole weight in memory of its own, which lives as long as the operator,
// autograd or a view needs it; whole_weights() counts these. What is written into a view of the
// weight changes that memory alone.
//
// keep_in() freezes the weight: no gradient is ever computed for it, also if someone asks for one.
// A follower (follow.h) works on top of a store. Code that lists the tensors of a module, to count
// or to move them, uses tensors_of().
//
// Threads: as for the weight itself. A store is used from forward and backward threads at once, so
// its product() must not change it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace headroom::libtorch {

// How the values of one weight are kept.
class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // x times the weight, plus the bias if it is defined; differentiable in both. `transposed`: with
  // W^T, as linear() does.
  [[nodiscard]] virtual at::Tensor product(const at::Tensor& x, bool transposed,
                                           const at::Tensor& bias) const = 0;
  // at::_grouped_mm: the rows of x up to ends[0] times the first matrix, up to ends[1] times the
  // second, and so on; differentiable in x.
  [[nodiscard]] virtual at::Tensor grouped_product(const at::Tensor& x, bool transposed,
                                                   const at::Tensor& ends) const = 0;
  // The whole weight in this type, as a new tensor.
  [[nodiscard]] virtual at::Tensor whole(at::ScalarType type) const = 0;
  // `values` may be a weight with a store itself.
  virtual void assign(const at::Tensor& values) = 0;
  // The tensors that it consists of. Moves change them in place; modules do not list them.
  [[nodiscard]] virtual std::vector<at::Tensor> tensors() const = 0;
  // A copy with tensors of its own.
  [[nodiscard]] virtual std::shared_ptr<Store> copy(c10::Device device) const = 0;
};

// From now on `weight` has no memory and is frozen; its values are those of `store`, which lies on
// its device. It may have had another store. Null: the weight gets memory again, without values.
void keep_in(const at::Tensor& weight, std::shared_ptr<Store> store);
// Null for other tensors.
[[nodiscard]] std::shared_ptr<Store> store_of(const at::Tensor& weight);

// How often, in this process, an operator got a whole weight, by the operator's name:
// {"aten::sum": 1}.
[[nodiscard]] std::map<std::string, std::int64_t> whole_weights();

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Every tensor with memory that a module consists of: its parameters and buffers, and in place of a
// stored weight those of its store ("fc.weight:0", "fc.weight:1", ...).
[[nodiscard]] NamedTensors tensors_of(const torch::nn::Module& module);
// The same without the buffers.
[[nodiscard]] NamedTensors parameters_of(const torch::nn::Module& module);
// One parameter: itself, or the tensors of its store.
[[nodiscard]] std::vector<at::Tensor> memory_of(const at::Tensor& parameter);

}  // namespace headroom::libtorch
