#include "headroom/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/base/json.h"
#include "headroom/data/detail/mapped_file.h"
#include "headroom/data/detail/tensors.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLabel = -100, kAny = std::numeric_limits<std::int64_t>::max();
constexpr const char* kHowToMake =
    "`python -m headroom.tokens FILE.jsonl --tokenizer DIR --out train.bin` to make one";

[[noreturn]] void refuse_tokens(const fs::path& file, const std::string& expected,
                                const std::string& received,
                                const std::string& to_try = kHowToMake) {
  throw InputError(expectation(file.string(), expected, received, to_try));
}

// ---- The files beside a .bin ----

struct TokenForm {
  std::int64_t width = 2;  // bytes of a token
  std::optional<std::int64_t> tokens, vocabulary, document_end, mask_token;
};

std::optional<std::int64_t> whole(const Json& document, const char* key, const fs::path& file) {
  if (!document.contains(key) || document[key].is_null()) return {};
  const Json& value = document[key];
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    refuse_tokens(file, fmt::format("a whole number for `{}`", key), value.dump());
  return value.get<std::int64_t>();
}

TokenForm form_of(const fs::path& bin) {
  const fs::path file = bin.string() + ".json";
  if (!fs::exists(file)) return {};
  const Json document = parse_json(read_input(file), file.string());
  if (!document.is_object()) refuse_tokens(file, "an object", document.dump());
  if (whole(document, "schema", file).value_or(1) != 1)
    refuse_tokens(file, "`schema` 1", document["schema"].dump(), "a newer Headroom");
  const std::string type = document.contains("dtype") ? document["dtype"].dump() : R"("uint16")";
  if (type != R"("uint16")" && type != R"("uint32")")
    refuse_tokens(file, R"("uint16" or "uint32" for `dtype`)", type);
  return {.width = type == R"("uint16")" ? 2 : 4,
          .tokens = whole(document, "tokens", file),
          .vocabulary = whole(document, "vocab_size", file),
          .document_end = whole(document, "document_end", file),
          .mask_token = whole(document, "mask_token_id", file)};
}

fs::path that_is_there(fs::path bin) {
  if (!fs::exists(bin))
    refuse_tokens(
        bin, "a file of tokens", "none",
        fmt::format("`python -m headroom.tokens FILE.jsonl --tokenizer DIR --out {}` to make one",
                    bin.string()));
  return bin;
}

fs::path mask_of(fs::path bin) {
  return bin.replace_extension(".mask.bin");
}

}  // namespace

class TokenFile::Content {
 public:
  Content(fs::path path, const TokenOptions& options)
      : path_(that_is_there(std::move(path))),
        options_(options),
        form_(form_of(path_)),
        file_(path_) {
    check_tokens();
    if (!options_.mask || !fs::exists(mask_of(path_))) return;
    mask_.emplace(mask_of(path_));
    const auto masked = static_cast<std::int64_t>(mask_->bytes().size());
    if (masked != tokens())
      refuse_tokens(mask_of(path_), fmt::format("a byte for each of the {} tokens", tokens()),
                    std::to_string(masked) + " bytes");
  }

  [[nodiscard]] const TokenForm& form() const { return form_; }
  [[nodiscard]] std::int64_t tokens() const {
    return static_cast<std::int64_t>(file_.bytes().size()) / form_.width;
  }
  [[nodiscard]] std::int64_t examples() const { return tokens() / options_.seq; }

  // The highest of the tokens that are looked at, and its place.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> highest() const {
    constexpr std::int64_t kBlock = std::int64_t{1} << 18, kMostBytes = std::int64_t{1} << 28;
    const std::int64_t blocks = (tokens() + kBlock - 1) / kBlock,
                       looked_at = std::min(blocks, kMostBytes / (kBlock * form_.width));
    std::pair<std::int64_t, std::int64_t> highest{-1, 0};
    for (std::int64_t i = 0; i < looked_at; ++i) {
      const std::int64_t first = i * blocks / looked_at * kBlock;
      for (std::int64_t place = first; place < std::min(first + kBlock, tokens()); ++place)
        if (const std::int64_t value = stored(place); value > highest.first)
          highest = {value, place};
    }
    return highest;
  }
  void check() const { static_cast<void>(token(highest().second)); }

  [[nodiscard]] Tensors example(std::int64_t index) const {
    const std::int64_t first = index * options_.seq;
    const at::Tensor inputs = detail::empty({options_.seq}, at::kLong),
                     labels = detail::empty({options_.seq}, at::kLong);
    auto* const input = inputs.mutable_data_ptr<std::int64_t>();
    auto* const label = labels.mutable_data_ptr<std::int64_t>();
    const std::int64_t ahead = options_.labels == TokenOptions::Labels::next ? 1 : 0;
    for (std::int64_t i = 0; i < options_.seq; ++i) {
      input[i] = token(first + i);
      label[i] = label_of(first + i + ahead);
    }
    return {inputs, labels};
  }

 private:
  void check_tokens() const {
    const auto bytes = static_cast<std::int64_t>(file_.bytes().size());
    if (bytes == 0) refuse_tokens(path_, "tokens", "an empty file");
    if (bytes % form_.width != 0)
      refuse_tokens(path_, fmt::format("whole tokens of {} bytes", form_.width),
                    std::to_string(bytes) + " bytes");
    if (form_.tokens && *form_.tokens != tokens())
      refuse_tokens(path_, fmt::format("{} tokens, as {}.json says", *form_.tokens, path_.string()),
                    std::to_string(tokens()));
    if (options_.seq < 1)
      throw UsageError(expectation("TokenFile", "at least one token in an example",
                                   std::to_string(options_.seq)));
    if (examples() == 0)
      refuse_tokens(path_, std::to_string(options_.seq) + " tokens or more, which make an example",
                    std::to_string(tokens()), "a smaller `seq`, or more text");
    if (options_.skip_document_starts && !form_.document_end)
      refuse_tokens(path_.string() + ".json", "a `document_end`", "none");
  }

  [[nodiscard]] std::int64_t stored(std::int64_t place) const {
    const char* const at = file_.bytes().data() + place * form_.width;
    std::uint16_t narrow = 0;
    std::uint32_t wide = 0;
    if (form_.width == 2) return std::memcpy(&narrow, at, sizeof narrow), narrow;
    return std::memcpy(&wide, at, sizeof wide), wide;
  }

  [[nodiscard]] std::int64_t token(std::int64_t place) const {
    const std::int64_t value = stored(place);
    const std::int64_t known = form_.vocabulary.value_or(kAny);
    const std::int64_t limit = std::min(known, options_.vocabulary.value_or(kAny));
    if (value >= limit)
      refuse_tokens(path_, "tokens below " + std::to_string(limit),
                    fmt::format("{} as token {}", value, place),
                    limit < known ? "the tokenizer of this model" : kHowToMake);
    return value;
  }

  [[nodiscard]] std::int64_t label_of(std::int64_t place) const {
    if (place >= tokens()) return kNoLabel;
    if (mask_ && mask_->bytes()[static_cast<std::size_t>(place)] == 0) return kNoLabel;
    if (options_.skip_document_starts && (place == 0 || token(place - 1) == *form_.document_end))
      return kNoLabel;
    return token(place);
  }

  fs::path path_;
  TokenOptions options_;
  TokenForm form_;
  detail::MappedFile file_;
  std::optional<detail::MappedFile> mask_;
};

TokenFile::TokenFile(const fs::path& path, const TokenOptions& options)
    : content_(std::make_unique<Content>(path, options)) {}
TokenFile::~TokenFile() = default;

std::int64_t TokenFile::size() const {
  return content_->examples();
}
Tensors TokenFile::example(std::int64_t index, std::uint64_t /*seed*/) const {
  return content_->example(index);
}
std::int64_t TokenFile::tokens() const {
  return content_->tokens();
}
std::optional<std::int64_t> TokenFile::vocabulary() const {
  return content_->form().vocabulary;
}
std::optional<std::int64_t> TokenFile::document_end() const {
  return content_->form().document_end;
}
std::optional<std::int64_t> TokenFile::mask_token() const {
  return content_->form().mask_token;
}
void TokenFile::check() const {
  content_->check();
}
std::int64_t TokenFile::highest() const {
  return content_->highest().first;
}

std::optional<fs::path> token_file_in(const fs::path& folder, Split split) {
  if (fs::is_regular_file(folder))
    return split == Split::train ? std::optional(folder) : std::nullopt;
  const char* const name = split == Split::train        ? "train.bin"
                           : split == Split::validation ? "val.bin"
                                                        : "test.bin";
  if (fs::exists(folder / name)) return folder / name;
  if (split == Split::train) refuse_tokens(folder, "a file of tokens, train.bin", "none");
  return {};
}

}  // namespace headroom::data
