// Checkpoints of several files: the index that says which of them has what.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/weights/stored_models.h"

namespace headroom::weights {
namespace {

using namespace headroom::models;

using ::testing::HasSubstr;

std::string index_with(const std::map<std::string, std::string>& files) {
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  for (const auto& [tensor, file] : files) index["weight_map"][tensor] = file;
  return index.dump();
}

class BrokenIndex : public ::testing::Test {
 protected:
  BrokenIndex() {
    const auto entries = entries_of(*model_, same);
    first_ = entries.front().name;
    folder_.write("a.safetensors", file_with(entries));
    folder_.write("b.safetensors", file_with({floats("other", at::zeros({1}))}));
    folder_.write("again.safetensors", file_with({entries.front()}));
  }
  std::string refused(const std::string& index) {
    return refusal(*model_, folder_.write("model.safetensors.index.json", index));
  }
  const Folder folder_;
  const std::shared_ptr<Model> model_ = filled(tiny_gpt2());
  std::string first_;
};

TEST_F(BrokenIndex, IsReadWhenItIsWhole) {
  EXPECT_EQ(refused(index_with({{first_, "a.safetensors"}})), "none");
  EXPECT_EQ(load(*model_, folder_.path()).missing.size(), 0U);
}

TEST_F(BrokenIndex, IsRefusedForAFileThatIsNotThere) {
  EXPECT_THAT(refused(index_with({{first_, "c.safetensors"}})),
              HasSubstr("c.safetensors: No such"));
}

TEST_F(BrokenIndex, IsRefusedForATensorThatItsFileLacks) {
  EXPECT_THAT(refused(index_with({{"x", "a.safetensors"}})),
              HasSubstr("tensor \"x\" in a.safetensors"));
  EXPECT_THAT(refused(index_with({{"other", "a.safetensors"}, {first_, "b.safetensors"}})),
              HasSubstr("received 'it in "));
}

TEST_F(BrokenIndex, IsRefusedForATensorThatTwoFilesHave) {
  EXPECT_THAT(refused(index_with({{first_, "a.safetensors"}, {"x", "again.safetensors"}})),
              HasSubstr("again.safetensors"));
}

TEST_F(BrokenIndex, IsRefusedForFilesElsewhere) {
  for (const char* file : {"../a.safetensors", "/etc/passwd", "..", "", "."})
    EXPECT_THAT(refused(index_with({{first_, file}})), HasSubstr("the name of a file beside it"));
}

TEST_F(BrokenIndex, IsRefusedIfItIsNotAnIndex) {
  EXPECT_THAT(refused("{"), HasSubstr("an index of JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("`weight_map`"));
  EXPECT_THAT(refused(R"({"weight_map":[]})"), HasSubstr("`weight_map`"));
  EXPECT_THAT(refused(R"({"weight_map":{"x":1}})"), HasSubstr("received 'number'"));
  EXPECT_THAT(refused(R"({"weight_map":{"x":)" + std::string(100'000, '[')), HasSubstr("of JSON"));
  EXPECT_THAT(refused(R"({"weight_map":{"x":)" + std::string(100'000, '[') +
                      std::string(100'000, ']') + "}}"),
              HasSubstr("received 'array'"));
  EXPECT_THAT(refused(R"({"weight_map":{"x":"a","x":"b"}})"), HasSubstr("\"x\" again"));
  EXPECT_THAT(refused(R"({"weight_map":{"x":"a"},"weight_map":{}})"),
              HasSubstr("\"weight_map\" again"));
  EXPECT_THAT(refused(R"({"metadata":{"x":1},"weight_map":{"x":"none"}})"), HasSubstr("No such"));
}

}  // namespace
}  // namespace headroom::weights
