# Writes OUTPUT: a C++ file in which NAMESPACE::NAME() returns the content of the files INPUT, joined.
# The bytes stand there as numbers, because raw string literals have a length limit in some compilers.
set(bytes "")
foreach(file IN LISTS INPUT)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND bytes "${hex}")
endforeach()
file(WRITE "${OUTPUT}.new"
"#include <string_view>
namespace ${NAMESPACE} {
std::string_view ${NAME}() {
  static constexpr unsigned char kContent[] = {${bytes}0};
  return {reinterpret_cast<const char*>(kContent), sizeof kContent - 1};
}
}  // namespace ${NAMESPACE}
")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
