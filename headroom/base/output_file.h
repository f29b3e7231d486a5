// A large file, written piece by piece: a reader sees the old content or the new, never half.
//
//   OutputFile file("trace.json");
//   file.write(piece);
//   file.commit();  // without it nothing happened: an exception or Ctrl-C leaves the old file
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

class OutputFile {
 public:
  // Written next to the target. Permissions of an existing file are kept, and links to it; a pipe
  // or device is written into at once. All functions throw WriteError.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();  // what was not committed is removed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view content);
  // Flushes to the disk and takes the target's place.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(int error);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: written into the target itself
  int descriptor_ = -1;
  std::string buffer_;
};

}  // namespace headroom
