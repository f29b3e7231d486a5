#include "headroom/weights/detail/safetensors_file.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <unordered_map>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/weights/detail/safetensors_json.h"

namespace headroom::weights::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void cannot_read(const std::string& name, int error) {
  throw InputError("safetensors", fmt::format("cannot read {}: {}", name, std::strerror(error)));
}

// Maps a whole file for reading. Empty for an empty file, which cannot be mapped.
std::string_view mapped(const std::string& name) {
  // O_NONBLOCK, because opening a pipe without a writer would block before the pipe is refused.
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) cannot_read(name, errno);
  struct stat about {};
  const int error = ::fstat(descriptor, &about) == 0 ? 0 : errno;
  void* begin = nullptr;
  const auto size = static_cast<std::size_t>(about.st_size);
  if (error == 0 && S_ISREG(about.st_mode) && size > 0)
    begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int map_error = begin == MAP_FAILED ? errno : 0;
  ::close(descriptor);
  if (error != 0) cannot_read(name, error);
  if (!S_ISREG(about.st_mode))
    throw InputError(expectation("safetensors", "a file", name + ", which is not one"));
  if (map_error != 0) cannot_read(name, map_error);
  return {static_cast<const char*>(begin), size};
}

void unmap(std::string_view bytes) {
  if (!bytes.empty()) ::munmap(const_cast<char*>(bytes.data()), bytes.size());  // NOLINT
}

fs::path found_in(const fs::path& folder) {
  for (const char* name : {kSingle, kIndex}) {
    std::error_code error;
    if (fs::exists(folder / name, error)) return folder / name;
    if (error) cannot_read((folder / name).string(), error.value());
  }
  throw InputError(expectation(
      "safetensors", fmt::format("{} or {} in {}", kSingle, kIndex, folder.string()), "neither",
      "the folder of a model on the Hugging Face hub; weights in .bin files "
      "must be saved as safetensors first"));
}

// Reads which file an index names for each tensor.
std::map<std::string, std::string> weight_map(const fs::path& path) {
  const std::string source = path.string();
  const auto refuse = [&](const std::string& expected, const std::string& received) {
    throw InputError(
        expectation("safetensors", fmt::format("{} in {}", expected, source), received));
  };
  std::set<std::string> keys, inner_keys;  // of the index; of the object in it that is being read
  const auto each_once = [&](int depth, nlohmann::json::parse_event_t event,
                             const nlohmann::json& key) {
    if (event != nlohmann::json::parse_event_t::key || depth > 2) return true;
    if (depth == 1) inner_keys.clear();
    if (!(depth == 1 ? keys : inner_keys).insert(key.get<std::string>()).second)
      refuse("each key once", in_quotes(key.get<std::string>()) + " again");
    return true;
  };
  nlohmann::json index;
  try {
    index = nlohmann::json::parse(read_input(path), each_once);
  } catch (const nlohmann::json::exception&) {
    refuse("an index of JSON", "something else");
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    refuse("a key `weight_map` with an object", "none");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename() || name == "." || name == "..")
      refuse("the name of a file beside it for " + in_quotes(tensor),
             file.is_string() ? in_quotes(name) : file.type_name());
    files[tensor] = name;
  }
  return files;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const fs::path& path)
    : name_(path.string()), bytes_(mapped(name_)) {
  try {
    tensors_ = read_safetensors_header(bytes_, name_);
  } catch (...) {
    unmap(bytes_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  unmap(bytes_);
}

std::string_view SafetensorsFile::bytes_of(const StoredTensor& tensor) const {
  return bytes_.substr(tensor.begin, tensor.end - tensor.begin);
}

void SafetensorsFile::forget(std::string_view bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // NOLINTBEGIN: addresses are numbers here, and madvise changes no bytes
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_DONTNEED);
  // NOLINTEND
}

Checkpoint::Checkpoint(const fs::path& path) : name_(path.string()) {
  std::error_code error;  // ignored: opening the path fails too and says why
  const fs::path file = fs::is_directory(path, error) ? found_in(path) : path;
  if (file.extension() == ".json") {
    open_index(file);
    return;
  }
  files_.push_back(std::make_unique<SafetensorsFile>(file));
  for (const StoredTensor& tensor : files_.back()->tensors())
    tensors_.push_back({files_.back().get(), &tensor});
}

void Checkpoint::open_index(const fs::path& path) {
  const std::map<std::string, std::string> said = weight_map(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : said) names.insert(file);
  std::unordered_map<std::string, const SafetensorsFile*> holders;
  for (const std::string& name : names) {
    files_.push_back(std::make_unique<SafetensorsFile>(path.parent_path() / name));
    const SafetensorsFile* file = files_.back().get();
    for (const StoredTensor& tensor : file->tensors()) {
      const auto [holder, is_first] = holders.emplace(tensor.name, file);
      if (!is_first)
        throw InputError(expectation(
            "safetensors",
            fmt::format("tensor {} in one file of {}", in_quotes(tensor.name), path.string()),
            fmt::format("it in {} and in {}, byte {}", holder->second->name(), file->name(),
                        tensor.begin)));
      tensors_.push_back({file, &tensor});
    }
  }
  for (const auto& [tensor, file] : said) {
    const auto holder = holders.find(tensor);
    if (holder == holders.end() || holder->second->name() != (path.parent_path() / file).string())
      throw InputError(expectation(
          "safetensors",
          fmt::format("tensor {} in {}, as {} says", in_quotes(tensor), file, path.string()),
          holder == holders.end() ? "none" : "it in " + holder->second->name()));
  }
}

}  // namespace headroom::weights::detail
