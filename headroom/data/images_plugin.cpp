// libheadroom_images.so: fills the table of detail/image_functions.h with libjpeg-turbo, libpng and
// libmatio. It uses nothing of libheadroom.so.
#include <matio.h>
#include <png.h>
#include <turbojpeg.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>

#include "headroom/data/detail/image_functions.h"

namespace headroom::data::detail {
namespace {

// ---- JPEG ----

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<std::remove_pointer_t<tjhandle>, Destroy>;

// The interface is not const, but reads only.
unsigned char* bytes_in(std::string_view jpeg) {
  return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(jpeg.data()));  // NOLINT
}

struct Header {
  PixelSize size;
  int subsampling = 0, colours = 0;
};

std::string read_header(const Handle& handle, std::string_view jpeg, Header& header) {
  const int result =
      tjDecompressHeader3(handle.get(), bytes_in(jpeg), jpeg.size(), &header.size.width,
                          &header.size.height, &header.subsampling, &header.colours);
  return result == 0 ? "" : tjGetErrorStr2(handle.get());
}

std::string size_of_jpeg(std::string_view jpeg, PixelSize& size) {
  const Handle handle(tjInitDecompress());
  Header header;
  std::string problem = read_header(handle, jpeg, header);
  size = header.size;
  return problem;
}

// libjpeg completes a truncated image with grey and warns. Its other warnings are about stray
// bytes, which published images have, too.
bool is_fatal(const Handle& handle) {
  const std::string_view text = tjGetErrorStr2(handle.get());
  return tjGetErrorCode(handle.get()) == TJERR_FATAL ||
         text.find("remature end") != std::string_view::npos;
}

// Ink to light. Programs store the four inks inverted (Adobe's way): 255 is none.
void from_inks(const std::vector<unsigned char>& inks, std::vector<unsigned char>& rgb) {
  rgb.resize(inks.size() / 4 * 3);
  for (std::size_t i = 0; i < inks.size() / 4; ++i)
    for (std::size_t colour = 0; colour < 3; ++colour)
      rgb[3 * i + colour] =
          static_cast<unsigned char>(inks[4 * i + colour] * inks[4 * i + 3] / 255);
}

std::string decode_jpeg(std::string_view jpeg, int divisor, Pixels& pixels) {
  const Handle handle(tjInitDecompress());
  Header header;
  if (std::string problem = read_header(handle, jpeg, header); !problem.empty()) return problem;
  const tjscalingfactor scale{1, divisor};
  const int width = TJSCALED(header.size.width, scale),
            height = TJSCALED(header.size.height, scale);
  const bool inks = header.colours == TJCS_CMYK || header.colours == TJCS_YCCK;
  const int form = inks ? TJPF_CMYK : TJPF_RGB;
  std::vector<unsigned char> samples(static_cast<std::size_t>(width) *
                                     static_cast<std::size_t>(height) *
                                     static_cast<std::size_t>(tjPixelSize[form]));  // NOLINT
  const int result = tjDecompress2(handle.get(), bytes_in(jpeg), jpeg.size(), samples.data(), width,
                                   0, height, form, 0);
  if (result != 0 && is_fatal(handle)) return tjGetErrorStr2(handle.get());
  pixels.size = {width, height};
  if (inks)
    from_inks(samples, pixels.rgb);
  else
    pixels.rgb = std::move(samples);
  return "";
}

std::string encode(const Pixels& pixels, int quality, std::string& jpeg) {
  const Handle handle(tjInitCompress());
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  const int result =
      tjCompress2(handle.get(), pixels.rgb.data(), pixels.size.width, 0, pixels.size.height,
                  TJPF_RGB, &bytes, &size, TJSAMP_420, quality, 0);
  const std::unique_ptr<unsigned char, decltype(&tjFree)> owner(bytes, &tjFree);
  if (result != 0) return tjGetErrorStr2(handle.get());
  jpeg.assign(reinterpret_cast<const char*>(bytes), size);
  return "";
}

// ---- PNG ----

class Png {
 public:
  explicit Png(std::string_view bytes) {
    image_.version = PNG_IMAGE_VERSION;
    png_image_begin_read_from_memory(&image_, bytes.data(), bytes.size());
  }
  ~Png() { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  [[nodiscard]] std::string problem() const {
    return PNG_IMAGE_FAILED(image_) ? image_.message : "";
  }
  [[nodiscard]] PixelSize size() const {
    return {static_cast<int>(image_.width), static_cast<int>(image_.height)};
  }
  // Red, green, blue and opacity of each pixel.
  [[nodiscard]] std::vector<unsigned char> samples() {
    image_.format = PNG_FORMAT_RGBA;
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits do not mean linear light
    std::vector<unsigned char> all(PNG_IMAGE_SIZE(image_));
    png_image_finish_read(&image_, nullptr, all.data(), 0, nullptr);
    return all;
  }

 private:
  png_image image_{};
};

std::string size_of_png(std::string_view bytes, PixelSize& size) {
  const Png png(bytes);
  size = png.size();
  return png.problem();
}

std::string decode_png(std::string_view bytes, Pixels& pixels) {
  Png png(bytes);
  if (std::string problem = png.problem(); !problem.empty()) return problem;
  const std::vector<unsigned char> samples = png.samples();
  pixels.size = png.size();
  pixels.rgb.resize(samples.size() / 4 * 3);
  for (std::size_t i = 0; i < samples.size() / 4; ++i)
    std::memcpy(&pixels.rgb[3 * i], &samples[4 * i], 3);
  return png.problem();
}

// ---- Both, told apart by their first bytes ----

bool is_png(std::string_view bytes) {
  return bytes.starts_with("\x89PNG\r\n");
}

std::string size_of(std::string_view bytes, PixelSize& size) {
  return is_png(bytes) ? size_of_png(bytes, size) : size_of_jpeg(bytes, size);
}

std::string decode(std::string_view bytes, int divisor, Pixels& pixels) {
  return is_png(bytes) ? decode_png(bytes, pixels) : decode_jpeg(bytes, divisor, pixels);
}

// ---- MATLAB's files. libmatio keeps state of its own. ----

std::mutex mat_mutex;
std::string mat_problem;  // guarded by it: the last complaint, which matio would print

void note_problem(int /*level*/, char* text) {
  mat_problem = text;
}

struct CloseMat {
  void operator()(mat_t* file) const { Mat_Close(file); }
};
struct FreeVariable {
  void operator()(matvar_t* variable) const { Mat_VarFree(variable); }
};
using MatFile = std::unique_ptr<mat_t, CloseMat>;
using MatVariable = std::unique_ptr<matvar_t, FreeVariable>;

std::string mat_failure(const std::string& otherwise) {
  return mat_problem.empty() ? otherwise : mat_problem;
}

template <typename Number>
void append(const void* data, std::size_t count, std::vector<double>& values) {
  for (std::size_t i = 0; i < count; ++i) {
    Number number;
    std::memcpy(&number, static_cast<const char*>(data) + i * sizeof number, sizeof number);
    values.push_back(static_cast<double>(number));
  }
}

// False if it does not hold numbers.
bool append_numbers(const matvar_t& variable, std::vector<double>& values) {
  const auto size = static_cast<std::size_t>(variable.data_size);
  if (variable.data == nullptr || size == 0 || variable.isComplex != 0) return false;
  const std::size_t count = variable.nbytes / size;
  switch (variable.class_type) {
    case MAT_C_DOUBLE:
      return append<double>(variable.data, count, values), true;
    case MAT_C_SINGLE:
      return append<float>(variable.data, count, values), true;
    case MAT_C_INT8:
      return append<std::int8_t>(variable.data, count, values), true;
    case MAT_C_UINT8:
      return append<std::uint8_t>(variable.data, count, values), true;
    case MAT_C_INT16:
      return append<std::int16_t>(variable.data, count, values), true;
    case MAT_C_UINT16:
      return append<std::uint16_t>(variable.data, count, values), true;
    case MAT_C_INT32:
      return append<std::int32_t>(variable.data, count, values), true;
    case MAT_C_UINT32:
      return append<std::uint32_t>(variable.data, count, values), true;
    default:
      return false;
  }
}

std::string read_mat(const char* file, const char* name, std::vector<double>& values) {
  const std::lock_guard lock(mat_mutex);
  mat_problem.clear();
  Mat_LogInitFunc("headroom", &note_problem);
  const MatFile mat(Mat_Open(file, MAT_ACC_RDONLY));
  if (mat == nullptr) return mat_failure("it is no MATLAB file");
  const MatVariable variable(Mat_VarRead(mat.get(), name));
  if (variable == nullptr) return mat_failure(std::string("it has no variable ") + name);
  if (!mat_problem.empty()) return mat_problem;
  return append_numbers(*variable, values) ? "" : std::string(name) + " does not hold numbers";
}

std::string write_mat(const char* file, const MatVariables& variables) {
  const std::lock_guard lock(mat_mutex);
  mat_problem.clear();
  Mat_LogInitFunc("headroom", &note_problem);
  const MatFile mat(Mat_CreateVer(file, nullptr, MAT_FT_MAT5));
  if (mat == nullptr) return mat_failure("it cannot be written");
  for (const auto& [name, values] : variables) {
    std::vector<std::uint16_t> numbers;
    for (const double value : values) numbers.push_back(static_cast<std::uint16_t>(value));
    size_t sizes[2] = {1, numbers.size()};  // NOLINT: as matio wants it
    const MatVariable variable(
        Mat_VarCreate(name.c_str(), MAT_C_UINT16, MAT_T_UINT16, 2, sizes, numbers.data(), 0));
    if (variable == nullptr || Mat_VarWrite(mat.get(), variable.get(), MAT_COMPRESSION_ZLIB) != 0)
      return mat_failure("it cannot be written");
  }
  return "";
}

constexpr ImageFunctions kImageFunctions = {.size_of = &size_of,
                                            .decode = &decode,
                                            .encode = &encode,
                                            .read_mat = &read_mat,
                                            .write_mat = &write_mat};

}  // namespace
}  // namespace headroom::data::detail

extern "C" __attribute__((visibility("default"))) const headroom::data::detail::ImageFunctions*
headroom_image_functions(int version) {
  using namespace headroom::data::detail;
  return version == kImageFunctionsVersion ? &kImageFunctions : nullptr;
}
