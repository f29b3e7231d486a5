// A run's figures in TensorBoard's file format; TensorBoard itself is not needed to write them.
//
//   EventFile events("out/tensorboard");
//   events.scalar("loss", 2.5, step);
//   events.scalar("memory/peak_bytes", 6e9, step);
//   events.flush();  // from here on `tensorboard --logdir out` shows them
//
// Each object begins a file of its own, events.out.tfevents.<time>.<host>.<pid>.<n>; TensorBoard
// reads the files of a folder in the order of their names, as one run. A run that goes on after
// step 500 gives 501 as `first_step`: TensorBoard then drops the older files' figures of step 501
// and later. A new run in an old folder therefore replaces all of its figures.
//
// The records are those of TensorFlow (tensorflow/core/lib/io/record_writer.h), each a message of
// event.proto in Protocol Buffers' encoding. A scalar is stored as a float of 32 bits.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "headroom/base/descriptor.h"

namespace headroom::train {

class EventFile {
 public:
  // Makes the folder and the file. All functions throw WriteError.
  explicit EventFile(const std::filesystem::path& folder, std::int64_t first_step = 0);
  ~EventFile();  // flushes, without a word if that fails
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Kept in memory until flush(). A tag is UTF-8; "memory/peak_bytes" is shown in a group "memory".
  void scalar(std::string_view tag, double value, std::int64_t step);
  // TensorBoard shows the text as Markdown.
  void text(std::string_view tag, std::string_view text, std::int64_t step);

  // Hands the records to the operating system. If the disk is full, the records since the last
  // flush() are lost; the older ones stay, and the file goes on with the next.
  void flush();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::string waiting_;  // whole records
  std::int64_t size_ = 0;
};

// The checksum of records, CRC-32C (RFC 3720), before TensorFlow's masking.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace headroom::train
