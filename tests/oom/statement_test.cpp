#include "headroom/oom/detail/statement.h"

#include <gtest/gtest.h>

namespace headroom::oom::detail {
namespace {

Statement about(std::string_view words, std::string_view text) {
  return statement_at(text, find(words, text).value());
}

TEST(Statements, TellOfAnEvent) {
  for (const char* text :
       {"runtimeerror: cuda error: out of memory", "error 'out of memory' in file a.cu",
        "{\"error\": \"gpu out of memory\", \"code\": 1}", "cudaerror(2, 'out of memory')",
        "errors: [\"out of memory\"]", "gpu 0 out of memory", "could not start: out of memory",
        "failed, out of memory, line 12"})
    EXPECT_EQ(about("out of memory", text), Statement::event) << text;
}

TEST(Statements, MayBeAGuess) {
  for (const char* text : {"the worker died, perhaps out of memory", "are you out of memory?",
                           "a large batch may cause out of memory"})
    EXPECT_EQ(about("out of memory", text), Statement::guess) << text;
}

TEST(Statements, MayOnlyMentionIt) {
  for (const char* text :
       {"if you run out of memory, lower the batch", "if cuda out of memory, you can lower it",
        "note: when out of memory occurs, lower it", "no cuda out of memory so far",
        "did not run out of memory", "0 out of memory errors", "out of memory errors: 0",
        "['out of memory', 'timeout']", "retry_on=out of memory", "fix out of memory in eval",
        "job 7 \"out of memory\"", "grep: out of memory.txt: no such file",
        "one of: ok, out of memory, timeout, killed", "should end out of memory"})
    EXPECT_EQ(about("out of memory", text), Statement::mention) << text;
}

TEST(Statements, KnowFlags) {
  EXPECT_EQ(about("oomkilled", "\"oomkilled\": false,"), Statement::mention);
  EXPECT_EQ(about("oomkilled", "\"oomkilled\":true,"), Statement::event);
  EXPECT_EQ(about("oom_kill", "oom 3 oom_kill 0 oom_group_kill 0"), Statement::mention);
  EXPECT_EQ(about("oom_kill", "oom_kill 3"), Statement::event);
  EXPECT_EQ(about("oomkilled", "reason: oomkilled exit code: 0"), Statement::event);
}

}  // namespace
}  // namespace headroom::oom::detail
