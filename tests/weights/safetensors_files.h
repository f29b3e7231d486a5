// Files in the safetensors format, made by hand, and a folder to put them.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/file.h"

namespace headroom::weights {

// Length, head and data as given, right or wrong.
inline std::string file_of(std::string_view json, std::string_view data) {
  std::string file;
  for (std::size_t i = 0; i < 8; ++i) file += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  file += json;
  file += data;
  return file;
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// Gone at the end of the test.
class Folder {
 public:
  Folder() {
    static std::atomic<int> counter{0};
    path_ = std::filesystem::temp_directory_path() /
            ("headroom-models-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return path_ / name;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headroom::weights
