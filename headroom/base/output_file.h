// A large file, written piece by piece: a reader sees the old content or the new, never half.
//
//   OutputFile file("trace.json");
//   file.write(piece);
//   file.commit();  // without commit(), an exception or Ctrl-C leaves the old file as it was
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

class OutputFile {
 public:
  // Writes to a temporary file next to the target. An existing file keeps its permissions, and
  // symbolic links to it stay; a pipe or device is written directly. All functions throw
  // WriteError.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();  // removes the temporary file unless committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view content);
  // Flushes to the disk and leaves the target as it is. With several files, sync() each before the
  // first commit(): then a full disk leaves all targets as they were.
  void sync();
  // Flushes to the disk and replaces the target.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(int error);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // an empty path: writes go to the target itself
  int descriptor_ = -1;
  std::string buffer_;
};

}  // namespace headroom
