// LibTorch writes snapshots with a pickler of its own (torch/csrc/cuda/memory_snapshot.cpp), whose
// form differs from Python's: values are remembered after their content, all items of a list come
// in one part, and older versions name a function for each list and dict.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "tests/trace/events_of.h"

namespace headroom::trace {
namespace {

using c10::IValue;
using AnyDict = c10::Dict<IValue, IValue>;
using AnyList = c10::List<IValue>;
using testing::all_events;
using testing::open_bytes;

AnyDict dict(std::initializer_list<std::pair<IValue, IValue>> items) {
  AnyDict result(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) result.insert(key, value);
  return result;
}

AnyList list(std::initializer_list<IValue> items) {
  AnyList result(c10::AnyType::get());
  for (const IValue& item : items) result.push_back(item);
  return result;
}

IValue number(std::int64_t value) {
  return value;
}

AnyDict entry(const char* action, std::int64_t address, const AnyList& frames) {
  return dict({{"action", action},
               {"addr", number(address)},
               {"size", number(100)},
               {"stream", number(0)},
               {"compile_context", std::string("N/A")},
               {"user_metadata", std::string()},
               {"time_us", number(1'700'000'000'000'000)},
               {"frames", frames}});
}

std::string pickled(bool name_functions) {
  constexpr std::int64_t kAddress = 0x7f00'0000'0000;
  const auto frames = list(
      {dict({{"name", "step(int)"}, {"filename", "/project/train.cpp"}, {"line", number(12)}})});
  const auto block = dict({{"address", number(kAddress + 512)},
                           {"size", number(512)},
                           {"requested_size", number(300)},
                           {"state", "active_allocated"},
                           {"frames", frames}});
  const auto segment = dict({{"device", number(0)},
                             {"address", number(kAddress)},
                             {"total_size", number(2 << 20)},
                             {"stream", number(0)},
                             {"segment_pool_id", std::tuple<std::int64_t, std::int64_t>(0, 0)},
                             {"blocks", list({block})}});
  const auto snapshot = dict(
      {{"segments", list({segment})},
       {"device_traces",
        list({list({entry("alloc", kAddress, frames), entry("free_requested", kAddress, frames),
                    entry("free_completed", kAddress, frames)})})}});
  std::string bytes;
  {
    torch::jit::Pickler pickler(
        [&](const char* data, std::size_t size) { bytes.append(data, size); }, nullptr, nullptr,
        nullptr, nullptr, name_functions);
    pickler.protocol();
    pickler.pushIValue(snapshot);
    pickler.stop();
  }
  return bytes;
}

TEST(LibTorchPickler, IsReadWithAndWithoutTheNamesOfFunctions) {
  for (const bool name_functions : {false, true}) {
    const std::string bytes = pickled(name_functions);
    const auto reader = open_bytes(bytes);
    const auto events = all_events(*reader);
    ASSERT_EQ(events.size(), 5u);
    EXPECT_EQ(events[0].kind, Kind::segment_alloc);
    EXPECT_EQ(events[1].bytes, Bytes{300});
    EXPECT_EQ(events[4].kind, Kind::free_completed);
    EXPECT_EQ(reader->names().text(events[2].line), "/project/train.cpp:12");
  }
}

}  // namespace
}  // namespace headroom::trace
