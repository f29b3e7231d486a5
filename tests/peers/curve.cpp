#include "tests/peers/curve.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace headroom::nets {
namespace {

class Curve {
 public:
  explicit Curve(std::int64_t alive) : alive_(alive) {}
  void begin(std::string name, bool most_is_open = false) {
    points_.push_back({std::move(name), alive_, alive_, most_is_open});
  }
  void change(std::int64_t bytes) {
    alive_ += bytes;
    if (!points_.empty()) points_.back().most = std::max(points_.back().most, alive_);
  }
  void need(std::int64_t bytes) {
    change(bytes);
    change(-bytes);
  }
  [[nodiscard]] std::vector<Point> points() && { return std::move(points_); }

 private:
  std::int64_t alive_;
  std::vector<Point> points_;
};

std::string backward_of(const Function& function) {
  return function.name + "'s backward";
}

// Which events lie inside a function or its backward.
class Insides {
 public:
  explicit Insides(const Calls& calls) : inside_(calls.events().size(), false) {
    for (const Function& function : calls.functions()) {
      mark(function.begin, function.end);
      if (function.backward_begin != kNever) mark(function.backward_begin, function.backward_end);
    }
  }
  bool operator[](std::size_t event) const { return inside_[event]; }

 private:
  void mark(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i <= last; ++i) inside_[i] = true;
  }
  std::vector<bool> inside_;
};

// ---- From the CPU's run to CUDA's ----

class Prediction {
 public:
  explicit Prediction(const Calls& cpu) : cpu_(cpu), insides_(cpu), curve_(cpu.alive_before()) {
    for (const Block& block : cpu.blocks())
      blocks_.push_back({insides_[block.made] ? 0 : block.bytes, block.freed});
    for (const Function& function : cpu.functions()) replace(function);
    for (std::size_t call = 0; call < cpu.all().size(); ++call) add_difference(call);
    for (const Alive& block : blocks_) free_at(block.freed, block.bytes);
  }

  std::vector<Point> points() && {
    for (std::size_t i = 0; i < cpu_.events().size(); ++i) {
      step(i, cpu_.events()[i]);
      const auto [first, last] = freed_at_.equal_range(i);
      for (auto freed = first; freed != last; ++freed) curve_.change(-freed->second);
    }
    return std::move(curve_).points();
  }

 private:
  // A block of the CPU's run as it is on CUDA: none of it, where its operator does not run there.
  struct Alive {
    std::int64_t bytes = 0;
    std::size_t freed = kNever;
  };

  void step(std::size_t i, const Event& event) {
    switch (event.kind) {
      case Event::Kind::call:
        if (!insides_[i])
          curve_.begin(cpu_.all()[event.of].name, cpu_.all()[event.of].difference.has_value());
        break;
      case Event::Kind::make:
        if (!insides_[i]) curve_.change(blocks_[event.of].bytes);
        break;
      case Event::Kind::function: {
        const OnCuda& row = cpu_.functions()[event.of].on_cuda;
        run(cpu_.functions()[event.of].name, row.forward, row.saved);
        break;
      }
      case Event::Kind::backward: {
        const Function& function = cpu_.functions()[event.of];
        run(backward_of(function), function.on_cuda.backward, 0);
        break;
      }
      default:
        break;
    }
  }

  void run(std::string name, const OnCuda::Pass& pass, std::int64_t saved) {
    curve_.begin(std::move(name));
    curve_.need(pass.most);
    for (const std::int64_t bytes : pass.results) curve_.change(bytes);
    curve_.change(saved);
  }

  // Results of CUDA's way live as long as those of the CPU's in their place, and so does the memory
  // that backward needs.
  void replace(const Function& function) {
    const OnCuda& row = function.on_cuda;
    if (row.forward.results.size() != function.results.size())
      throw std::runtime_error(function.name + " has other results than its row");
    for (std::size_t i = 0; i < function.results.size(); ++i)
      blocks_[function.results[i]].bytes = row.forward.results[i];
    for (const std::size_t i : row.saved_results) save(function.results[i], function);
    for (const std::size_t block : function.saved_arguments) save(block, function);
    free_at(function.backward_end, row.saved);
    if (function.backward_begin == kNever) return;
    for (const std::int64_t bytes : row.backward.results) take_gradient(function, bytes);
  }

  void save(std::size_t block, const Function& function) {
    blocks_[block].freed = std::max(blocks_[block].freed, function.backward_end);
  }

  // One of those that outlive the CPU's backward pass.
  void take_gradient(const Function& function, std::int64_t bytes) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = cpu_.blocks()[i];
      const bool is_one =
          function.backward_begin < block.made && block.made < function.backward_end &&
          block.freed > function.backward_end && block.bytes == bytes && blocks_[i].bytes == 0;
      if (!is_one) continue;
      blocks_[i].bytes = bytes;
      return;
    }
    throw std::runtime_error(backward_of(function) + " leaves no gradient of " +
                             std::to_string(bytes) + " bytes");
  }

  // It lies in what the operator saves for backward, which is what of it lives longest.
  void add_difference(std::size_t call) {
    const std::int64_t difference = cpu_.all()[call].difference.value_or(0);
    if (difference == 0) return;
    Alive* longest = nullptr;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = cpu_.blocks()[i];
      if (block.call != call || block.temporary || insides_[block.made]) continue;
      if (longest == nullptr || longest->freed < blocks_[i].freed) longest = &blocks_[i];
    }
    if (longest != nullptr) longest->bytes += difference;
  }

  void free_at(std::size_t event, std::int64_t bytes) {
    if (event != kNever) freed_at_.emplace(event, bytes);
  }

  const Calls& cpu_;
  Insides insides_;
  Curve curve_;
  std::vector<Alive> blocks_;
  std::multimap<std::size_t, std::int64_t> freed_at_;
};

}  // namespace

std::vector<Point> measured(const Calls& calls) {
  const Insides insides(calls);
  Curve curve(calls.alive_before());
  for (std::size_t i = 0; i < calls.events().size(); ++i) {
    const Event& event = calls.events()[i];
    if (event.kind == Event::Kind::function)
      curve.begin(calls.functions()[event.of].name);
    else if (event.kind == Event::Kind::backward)
      curve.begin(backward_of(calls.functions()[event.of]));
    else if (event.kind == Event::Kind::call && !insides[i])
      curve.begin(calls.all()[event.of].name, calls.all()[event.of].difference.has_value());
    else if (event.kind == Event::Kind::make)
      curve.change(calls.blocks()[event.of].bytes);
    else if (event.kind == Event::Kind::free)
      curve.change(-calls.blocks()[event.of].bytes);
  }
  return std::move(curve).points();
}

std::vector<Point> predicted_for_cuda(const Calls& cpu) {
  return Prediction(cpu).points();
}

std::int64_t peak_of(const std::vector<Point>& points) {
  std::int64_t peak = 0;
  for (const Point& point : points) peak = std::max(peak, point.most);
  return peak;
}

}  // namespace headroom::nets
