// The error family. The type says whose fault the error is and what a caller can do about it; the
// command line turns each type into one exit code (docs/reference/exit-codes.md).
//
// "It does not fit" is an answer with figures, never an exception. Operators on simulated cards
// throw c10::Error (libtorch/operator_refusal.h). Each error text says what was expected, what was
// received and what to try.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/base/bytes.h"

namespace headroom {

// An error in words: `where` names a function, an option or a place in a file; `words` say the
// rest.
struct Complaint {
  std::string where, words;
};
// "[parse_bytes] expected ...", or only the words if `where` is empty.
[[nodiscard]] std::string to_string(const Complaint& complaint);

// The base class: catch this to catch every exception that Headroom throws on purpose. what() is
// for programmers: "[parse_bytes] expected ...". sentence() is for users, who do not know
// functions: "expected ...", or with an option or a place in a file "--need: expected ...".
class Error : public std::runtime_error {
 public:
  explicit Error(Complaint complaint);
  explicit Error(const std::string& words) : Error(Complaint{{}, words}) {}
  Error(const std::string& where, const std::string& words) : Error(Complaint{where, words}) {}

  [[nodiscard]] const Complaint& complaint() const { return complaint_; }
  [[nodiscard]] std::string sentence() const;

 private:
  Complaint complaint_;
};

// The caller asked for something that does not exist or cannot be parsed: a bad size, option, name.
struct UsageError : Error {
  using Error::Error;
};

// A file (or other input) does not hold the expected content.
struct InputError : Error {
  using Error::Error;
};

// The machine lacks a requirement: no driver, no GPU, no LibTorch.
struct UnavailableError : Error {
  using Error::Error;
};

// A write failed: full disk, missing folder, no permission.
struct WriteError : Error {
  using Error::Error;
};

// The resource exists but is in use, or did not answer in time: try later.
struct BusyError : Error {
  using Error::Error;
};

// One of Headroom's own assumptions is broken: a bug in Headroom, never the user's fault.
struct InternalError : Error {
  using Error::Error;
};

// Memory ran out, known for sure. Carries the size of the failed request.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(Complaint complaint, Bytes asked_bytes)
      : Error(std::move(complaint)), asked(asked_bytes) {}
  Bytes asked;
};

// "[parse_bytes] expected a size such as 10GiB, received '10 apples'; try 10GiB". `function` names
// the function that found the error; leave `to_try` empty if there is no useful suggestion.
[[nodiscard]] Complaint expectation(std::string_view function, std::string_view expected,
                                    std::string_view received, std::string_view to_try = {});

}  // namespace headroom
