// Values as Python's own pickle module writes them, to judge our reader.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace headroom::trace::testing {

// The output of a command, which must end with 0.
inline std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), got);
  if (::pclose(pipe) != 0) throw std::runtime_error("failed: " + command + "\n" + output);
  return output;
}

// A Python expression that may use `collections`, and must not contain a double quote.
inline std::string pickled(const std::string& expression, int protocol = 4) {
  return output_of(PYTHON
                   " -c \"import collections, pickle, sys; sys.stdout.buffer.write(pickle.dumps(" +
                   expression + ", " + std::to_string(protocol) + "))\"");
}

}  // namespace headroom::trace::testing
