// Holds bytes until their place in an output file comes: in memory up to 1 MiB, beyond that in an
// unnamed file beside the output. The file disappears with the process.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/base/output_file.h"

namespace headroom::trace::detail {

class Spool {
 public:
  // All functions throw WriteError.
  explicit Spool(std::filesystem::path beside);
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Append here, then call settle(), which may move the bytes to the file.
  [[nodiscard]] std::string& bytes() { return bytes_; }
  void settle();
  void copy_to(OutputFile& file);

 private:
  void flush();
  [[noreturn]] void fail(int error) const;

  std::filesystem::path beside_;
  int descriptor_ = -1;  // -1: all bytes are still in memory
  std::string bytes_;
};

}  // namespace headroom::trace::detail
