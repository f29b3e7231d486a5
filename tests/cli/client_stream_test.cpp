// What one client of `log --listen` may cost, and the addresses that it accepts. The endpoint as a
// whole is tested by listen_test.py.
#include "headroom/cli/core/serve/client_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/cli/core/serve/listen_address.h"

namespace headroom::cli {
namespace {

constexpr Seconds kNoTime{0.0}, kMuch{60.0};

class ClientStreamTest : public ::testing::Test {
 protected:
  ClientStreamTest() {
    int both[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, both), 0);
    server_ = Descriptor(both[0]);
    client_ = Descriptor(both[1]);
  }
  void send(const std::string& text) const {
    EXPECT_EQ(::send(client_.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] ClientStream stream(const ClientBounds& bounds,
                                    Clock::time_point accepted = Clock::now()) const {
    return {server_.get(), accepted, bounds};
  }

  Descriptor server_, client_;
};

std::string read_all(ClientStream& stream) {
  std::string text;
  for (char c = 0; stream.read(&c, 1) == 1;) text += c;
  return text;
}

TEST_F(ClientStreamTest, ReadsNoMoreThanARequestMayHave) {
  send(std::string(10000, 'a'));
  auto stream = this->stream({.request = kMuch, .request_bytes = 8192});
  EXPECT_EQ(read_all(stream).size(), 8192U);
}

TEST_F(ClientStreamTest, GivesUpAClientThatSendsNoMore) {
  send("GET /met");
  auto stream = this->stream({.request = Seconds(0.01)});
  EXPECT_EQ(read_all(stream), "GET /met");
}

// Otherwise a burst of slow clients would cost the others their answers.
TEST_F(ClientStreamTest, ReadsARequestThatWaitedForAThread) {
  send("GET / HTTP/1.1\r\n\r\n");
  auto stream = this->stream({.request = kNoTime}, Clock::now() - std::chrono::hours(1));
  EXPECT_EQ(read_all(stream), "GET / HTTP/1.1\r\n\r\n");
}

TEST_F(ClientStreamTest, GivesUpAClientThatTakesNoAnswer) {
  auto stream = this->stream({.answer = Seconds(0.01)});
  const std::string part(100000, 'a');
  ssize_t sent = 0, all = 0;
  while (all < (1 << 30) && (sent = stream.write(part.data(), part.size())) > 0) all += sent;
  EXPECT_EQ(sent, -1);
  EXPECT_GT(all, 0);
}

TEST_F(ClientStreamTest, FailsWithoutASignalWhenTheClientIsGone) {
  client_.close();
  auto stream = this->stream({});
  char c = 0;
  EXPECT_LE(stream.read(&c, 1), 0);
  EXPECT_EQ(stream.write("a", 1), -1);
}

TEST(ParseListenAddress, IsLoopbackUnlessAnAddressIsGiven) {
  const auto shown = [](std::string_view text) {
    const ListenAddress address = parse_listen_address(text);
    return address.host + " " + std::to_string(address.port);
  };
  EXPECT_EQ(shown(":9400"), "127.0.0.1 9400");
  EXPECT_EQ(shown("0.0.0.0:0"), "0.0.0.0 0");
  EXPECT_EQ(shown("[::]:9400"), ":: 9400");
  EXPECT_EQ(shown("localhost:65535"), "localhost 65535");
}

TEST(ParseListenAddress, RefusesAllElse) {
  for (const char* text : {"", ":", "9400", "localhost", ":65536", ":-1", ":http", "::1:9400",
                           "[::1:9400", "[]:9400", "[::1]", "a:b:1", ":9400 "})
    EXPECT_THROW((void)parse_listen_address(text), UsageError) << text;
}

}  // namespace
}  // namespace headroom::cli
