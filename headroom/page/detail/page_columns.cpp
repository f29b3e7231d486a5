#include "headroom/page/detail/page_columns.h"

#include <zlib.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/varint.h"

namespace headroom::page::detail {
namespace {

constexpr std::size_t kMostTimes = 4096;

class NumberColumn {
 public:
  explicit NumberColumn(std::string& to) : to_(to) {}
  ~NumberColumn() {
    const auto size = static_cast<std::uint32_t>(bytes_.size());
    for (int shift = 0; shift < 32; shift += 8) to_ += static_cast<char>(size >> shift & 0xff);
    to_ += bytes_;
  }
  NumberColumn(const NumberColumn&) = delete;
  NumberColumn& operator=(const NumberColumn&) = delete;

  void add(std::uint64_t value) { append_varint(bytes_, value); }
  void add(Bytes value) { add(static_cast<std::uint64_t>(value.count)); }
  // The difference from the previous number, which is not larger.
  void add_after(std::uint64_t value) { add(value - std::exchange(before_, value)); }

 private:
  std::string& to_;
  std::string bytes_;
  std::uint64_t before_ = 0;
};

template <typename Value>
void add_tensors(std::string& to, const Timeline& timeline, Value value) {
  NumberColumn column(to);
  for (const TensorLife& tensor : timeline.tensors) column.add(value(tensor));
}

void add_reserved(std::string& to, const Timeline& timeline) {
  NumberColumn column(to);
  Bytes before;
  Instant changed = 0;
  for (Instant i = 0; i < timeline.instants(); ++i) {
    if (timeline.reserved[i] == before) continue;
    column.add(std::uint64_t{i - std::exchange(changed, i)});
    column.add(zigzag(static_cast<std::uint64_t>((timeline.reserved[i] - before).count)));
    before = timeline.reserved[i];
  }
}

// Times of few instants: the page draws a line between them.
void add_times(std::string& to, const Timeline& timeline) {
  NumberColumn column(to);
  if (!timeline.about.times_are_known || timeline.instants() == 0) return;
  const std::size_t stride = std::max<std::size_t>(timeline.times_ns.size() / kMostTimes, 1);
  const std::int64_t first = timeline.times_ns.front();
  std::int64_t before = 0;
  std::size_t sampled = 0;
  const auto sample = [&](std::size_t instant) {
    const std::int64_t time = std::max(timeline.times_ns[instant] - first, before);
    column.add(std::uint64_t{instant - std::exchange(sampled, instant)});
    column.add(static_cast<std::uint64_t>(time - std::exchange(before, time)));
  };
  for (std::size_t i = 0; i < timeline.times_ns.size(); i += stride) sample(i);
  if (sampled + 1 != timeline.times_ns.size()) sample(timeline.times_ns.size() - 1);
}

void add_segments(std::string& to, const Timeline& timeline) {
  NumberColumn segments(to);
  std::uint64_t before = 0;
  for (const allocator::SegmentInfo& segment : timeline.segments_at_peak) {
    segments.add(segment.address - std::exchange(before, segment.address));
    segments.add(segment.size);
    segments.add(segment.stream);
    segments.add(segment.pool);
    segments.add(segment.is_expandable ? 1 : 0);
    segments.add(segment.blocks.size());
  }
}

void add_blocks(std::string& to, const Timeline& timeline) {
  NumberColumn blocks(to);
  if (timeline.instants() == 0) return;
  std::unordered_map<std::uint64_t, std::uint64_t> tensors;  // by address
  for (const std::uint32_t index : living_at(timeline, timeline.peak))
    tensors[timeline.tensors[index].address] = index + 1;
  for (const allocator::SegmentInfo& segment : timeline.segments_at_peak)
    for (const allocator::BlockInfo& block : segment.blocks) {
      const bool is_free = block.state == allocator::BlockInfo::State::free;
      blocks.add(block.size);
      blocks.add(is_free ? 0 : tensors[block.address]);
    }
}

}  // namespace

std::string gzipped(std::string_view bytes) {
  constexpr int kGzip = 15 + 16;  // window bits; 16 asks for gzip's header
  constexpr int kMemoryLevel = 9;
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw InternalError("[gzip] expected zlib to start");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw InternalError("[gzip] expected zlib to compress in one go");
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t n) -> std::uint32_t {
      return i + n < bytes.size() ? static_cast<unsigned char>(bytes[i + n]) : 0U;
    };
    const std::uint32_t three = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (int letter = 0; letter < 4; ++letter) text += kLetters[three >> (18 - 6 * letter) & 63];
  }
  for (std::size_t i = 0; i < (3 - bytes.size() % 3) % 3; ++i) text[text.size() - 1 - i] = '=';
  return text;
}

std::string page_columns(const Timeline& timeline) {
  std::string columns;
  {
    NumberColumn born(columns);
    for (const TensorLife& tensor : timeline.tensors) born.add_after(tensor.born);
  }
  add_tensors(columns, timeline, [&](const TensorLife& tensor) {
    return std::uint64_t{tensor.died == timeline.instants() ? 0 : tensor.died - tensor.born};
  });
  add_tensors(columns, timeline, [](const TensorLife& tensor) { return tensor.bytes; });
  add_tensors(columns, timeline,
              [](const TensorLife& tensor) { return tensor.block - tensor.bytes; });
  add_tensors(columns, timeline,
              [](const TensorLife& tensor) { return std::uint64_t{tensor.origin}; });
  {
    NumberColumn events(columns);
    for (const std::uint64_t number : timeline.event_numbers) events.add_after(number);
  }
  add_reserved(columns, timeline);
  add_times(columns, timeline);
  add_segments(columns, timeline);
  add_blocks(columns, timeline);
  return base64(gzipped(columns));
}

}  // namespace headroom::page::detail
