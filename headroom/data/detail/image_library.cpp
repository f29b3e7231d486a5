#include "headroom/data/detail/image_library.h"

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "headroom/base/error.h"

namespace headroom::data::detail {
namespace {

std::filesystem::path images_beside_us() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&image_functions), &info) == 0) return {};
  return std::filesystem::path(info.dli_fname).parent_path() / "libheadroom_images.so";
}

[[noreturn]] void no_images(const std::filesystem::path& library, const std::string& received) {
  throw UnavailableError(expectation("images", library.string() + ", which decodes images",
                                     received,
                                     "installing the packages libturbojpeg0-dev, libpng-dev and "
                                     "libmatio-dev"));
}

}  // namespace

const ImageFunctions& load_images_from(const std::filesystem::path& library) {
  using Entry = const ImageFunctions* (*)(int version);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const text = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc's is each thread's
    no_images(library, text != nullptr ? text : "no such library");
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "headroom_image_functions"));
  const ImageFunctions* const found = entry == nullptr ? nullptr : entry(kImageFunctionsVersion);
  if (found == nullptr) {
    dlclose(handle);
    no_images(library, "a library of another version of Headroom");
  }
  return *found;
}

const ImageFunctions& image_functions() {
  static std::atomic<const ImageFunctions*> loaded{nullptr};
  // Threads that come here together load the same library twice, which does no harm.
  if (loaded.load() == nullptr) loaded = &load_images_from(images_beside_us());
  return *loaded;
}

}  // namespace headroom::data::detail
