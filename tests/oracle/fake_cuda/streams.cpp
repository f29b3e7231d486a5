// Streams and events. A stream is a number and two counts: how many events were recorded on it, and
// up to which one they are complete.
#include <algorithm>
#include <bit>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "state.h"

namespace fake_cuda {
namespace {

struct Stream {
  std::uint64_t recorded = 0;   // events so far
  std::uint64_t completed = 0;  // the first so many are done
  bool noticed = false;         // an event of it, since the last take_noticed
};

struct Event {
  std::uint32_t stream = 0;
  std::uint64_t number = 0;  // which of its stream's events; 0: never recorded
  bool pending = false;      // recorded, and not yet seen complete
  bool exists = true;
};

// Real handles are addresses; these only have to ascend and to be even: PyTorch keeps a bit there.
constexpr std::uint64_t kStreamStep = 0x1000;
constexpr std::uint32_t kMostStreams = 1 << 20;

std::vector<Stream> streams;
std::deque<Event> events;  // never moves one: handles point into it
std::vector<Event*> destroyed;
Noticed noticed;

Stream& stream(std::uint32_t number) {
  if (number >= streams.size()) streams.resize(number + 1);
  return streams[number];
}

Event& event(cudaEvent_t handle) {
  Event& event = *reinterpret_cast<Event*>(handle);
  if (!event.exists) fail("an event is used after cudaEventDestroy");
  return event;
}

bool is_complete(const Event& event) {
  return event.number <= stream(event.stream).completed;
}

void notice(Event& event) {
  if (!event.pending) return;
  event.pending = false;
  --noticed.pending;
  ++noticed.completed;
  Stream& on = stream(event.stream);
  if (!std::exchange(on.noticed, true)) ++noticed.streams;
}

void complete(Stream& stream) {
  stream.completed = stream.recorded;
}

}  // namespace

void reset_events() {
  streams.clear();
  events.clear();
  destroyed.clear();
  noticed = {};
}

cudaStream_t stream_handle(std::uint32_t number) {
  if (number >= kMostStreams) fail("there is no stream " + std::to_string(number));
  return std::bit_cast<cudaStream_t>(number * kStreamStep);
}

std::uint32_t stream_number(const void* handle) {
  const auto value = reinterpret_cast<std::uint64_t>(handle);
  if (value % kStreamStep != 0 || value / kStreamStep >= kMostStreams)
    fail("not a stream: " + std::to_string(value));
  return static_cast<std::uint32_t>(value / kStreamStep);
}

void complete_events(cudaStream_t handle) {
  complete(stream(stream_number(handle)));
}

void complete_all_events() {
  for (Stream& stream : streams) complete(stream);
}

Noticed take_noticed() {
  if (noticed.streams > 0)
    for (Stream& stream : streams) stream.noticed = false;
  return std::exchange(noticed, Noticed{.pending = noticed.pending});
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned int) {
  Event* created = nullptr;
  if (destroyed.empty()) {
    created = &events.emplace_back();
  } else {
    created = destroyed.back();
    destroyed.pop_back();
    *created = {};
  }
  *handle = reinterpret_cast<cudaEvent_t>(created);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Event& gone = event(handle);
  if (gone.pending) fail("an event is destroyed before it was seen complete");
  gone.exists = false;
  destroyed.push_back(&gone);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t on) {
  Event& recorded = event(handle);
  if (recorded.pending) fail("an event is recorded again before it was seen complete");
  Stream& at = stream(stream_number(on));
  recorded.stream = stream_number(on);
  recorded.number = ++at.recorded;
  recorded.pending = true;
  ++noticed.pending;
  if (machine().events == Events::when_recorded) complete(at);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Event& asked = event(handle);
  if (!is_complete(asked)) return answer(cudaErrorNotReady);
  notice(asked);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Event& awaited = event(handle);
  Stream& on = stream(awaited.stream);
  on.completed = std::max(on.completed, awaited.number);
  notice(awaited);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  complete_events(handle);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  complete_all_events();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Stream& asked = stream(stream_number(handle));
  return asked.completed == asked.recorded ? cudaSuccess : answer(cudaErrorNotReady);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

}  // extern "C"
