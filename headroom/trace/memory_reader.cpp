#include "headroom/trace/memory_reader.h"

#include <utility>

namespace headroom::trace {
namespace {

class RecorderReader final : public Reader {
 public:
  RecorderReader(const Recorder& recorder, About about)
      : recorder_(recorder),
        about_(std::move(about)),
        begin_(recorder.dropped()),
        end_(recorder.recorded()),
        at_(begin_) {}

  bool next(Event& event) override {
    if (at_ == end_) return false;
    event = recorder_.event(at_++);
    return true;
  }
  [[nodiscard]] const About& about() const override { return about_; }
  [[nodiscard]] const Names& names() const override { return recorder_.names(); }
  [[nodiscard]] std::uint64_t position() const override { return at_ - begin_; }
  [[nodiscard]] std::optional<std::uint64_t> size() const override { return end_ - begin_; }

 private:
  const Recorder& recorder_;
  About about_;
  std::uint64_t begin_, end_, at_;
};

}  // namespace

std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about) {
  return std::make_unique<RecorderReader>(recorder, std::move(about));
}

}  // namespace headroom::trace
