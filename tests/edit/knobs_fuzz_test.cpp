// Random commands and files: the first values change nothing, others change nothing else.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "headroom/base/error.h"
#include "headroom/base/json.h"
#include "headroom/base/text.h"
#include "headroom/edit/knobs.h"
#include "headroom/edit/shell_words.h"
#include "tests/support/garbage.h"
#include "tests/support/temporary_folder.h"

namespace headroom::edit {
namespace {

using Words = std::vector<std::string>;

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  bool flip() { return below(2) == 0; }
  template <typename List>
  auto one_of(const List& list) {
    return list[below(list.size())];
  }
  std::mt19937& source() { return random_; }

 private:
  std::mt19937 random_;
};

// ---- Commands ----

std::string random_word(Dice& dice) {
  static const Words kWords{"train.py", "--lr",  "1e-4",      "64",   "--epochs=3", "a b",
                            "--",       "it's",  "x.batch=1", "-v",   "\"q\"",      "data=64",
                            "$HOME",    "*.txt", "--batch",   "#one", "\\",         "--amp"};
  return dice.one_of(kWords);
}

// Words with the value at a random place; where the value stands is returned as well.
Words random_command(Dice& dice, const std::string& value, bool joined) {
  Words words{"python"};
  for (std::size_t n = dice.below(5); n > 0; --n) words.push_back(random_word(dice));
  if (words.back().starts_with("--")) words.emplace_back("8");
  if (joined) {
    words.push_back("--batch-size=" + value);
  } else {
    words.insert(words.end(), {"--batch-size", value});
  }
  for (std::size_t n = dice.below(5); n > 0; --n) words.push_back(random_word(dice));
  return words;
}

std::string shell_text(Dice& dice, const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    text += std::string(1 + dice.below(3), ' ');
    const bool plain = quoted(word) == word && word[0] != '#';
    text += plain && dice.flip() ? "\"" + word + "\"" : quoted(word);
  }
  return text;
}

TEST(KnobsFuzz, OnlyTheMappedValueOfACommandChanges) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    const bool joined = dice.flip(), in_shell = dice.flip(), nested = dice.flip();
    const unsigned same = seed + 100000;
    const auto make = [&](const std::string& value) -> Words {
      Dice own(same);
      const Words words = random_command(own, value, joined);
      if (!in_shell) return words;
      const std::string text = "cd x;" + shell_text(own, words) + "|| exit 1";
      if (nested) return {"bash", "-c", "sh -c " + quoted(text)};
      return {"/bin/sh", "-ec", text};
    };
    const Knobs knobs({"--batch-size=batch"}, make("64"));
    ASSERT_EQ(knobs.value(Quantity::batch), 64) << seed;
    ASSERT_EQ(knobs.with(64, 1).command, make("64")) << seed;
    ASSERT_EQ(knobs.with(128, 1).command, make("128")) << seed;
    ASSERT_EQ(knobs.with(1, 1).command, make("1")) << seed;
  }
}

TEST(KnobsFuzz, DamagedShellTextsAreRefusedOrChangedBackAndForth) {
  int accepted = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Dice dice(seed);
    const std::string text = headroom::testing::mutated(
        shell_text(dice, random_command(dice, "64", dice.flip())), "sh -c 'x --batch-size 64'",
        dice.source(), "'\"\\;|&#<>$ `()\n64-=");
    const Words command{"bash", "-c", text};
    try {
      const Knobs knobs({"--batch-size=batch"}, command);
      const long long first = *knobs.value(Quantity::batch);
      ++accepted;
      ASSERT_EQ(knobs.with(first, 1).command, command);
      const Knobs other({"--batch-size=batch"}, knobs.with(first + 1, 1).command);
      ASSERT_EQ(other.value(Quantity::batch), first + 1) << text;
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(accepted, 300);
}

// ---- Files ----

const Words kKeys{"a", "b", "batch_size", "64", "lr", "x-y", "true"};

Json random_json(Dice& dice, int depth) {
  if (depth == 0 || dice.below(3) == 0) {
    const std::vector<Json> values{64, 1.5, "64", "text: {x}", nullptr, true, "\xc3\xa4\n\"#",
                                   -1, "'"};
    return dice.one_of(values);
  }
  Json json = dice.flip() ? Json::array() : Json::object();
  for (std::size_t n = dice.below(4); n > 0; --n) {
    Json inner = random_json(dice, depth - 1);
    if (json.is_array())
      json.push_back(std::move(inner));
    else
      json[dice.one_of(kKeys)] = std::move(inner);
  }
  return json;
}

// The same as YAML in block form, with comments and blanks as people write them.
std::string yaml_of(Dice& dice, const Json& json, int indent) {
  const auto remark = [&] { return std::string(dice.below(4) == 0 ? "  # 64: a" : "") + "\n"; };
  const bool block = json.is_structured() && !json.empty() && dice.below(4) != 0;
  if (!block) return " " + json.dump() + remark();
  std::string out = remark();
  const std::string blanks(static_cast<std::size_t>(indent), ' ');
  for (const auto& [key, value] : json.items()) {
    if (dice.below(5) == 0) out += "\n# b: 64\n";
    const std::string name = dice.flip() ? "\"" + key + "\":" : key + ":";
    out += blanks + (json.is_array() ? "-" : name) + yaml_of(dice, value, indent + 2);
  }
  return out;
}

// A random document with a known value in it, as text, and its keys.
struct Document {
  std::string text, keys;
};

Document random_document(Dice& dice, bool as_yaml, long long value) {
  Json json = Json::object();
  const Json before = random_json(dice, 3), after = random_json(dice, 3);
  json["first"] = before;
  json["train"] = {{"other", 64}, {"list", Json::array({1, {{"size", value}}})}, {"more", after}};
  const int indent = dice.flip() ? 2 : -1;
  if (!as_yaml) return {json.dump(indent), "train.list.1.size"};
  return {yaml_of(dice, json, 0), "train.list.1.size"};
}

TEST(KnobsFuzz, OnlyTheMappedValueOfAFileChanges) {
  const headroom::testing::TemporaryFolder folder;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const bool as_yaml = seed % 2 == 0;
    const auto make = [&](long long value) {
      Dice dice(seed);
      return random_document(dice, as_yaml, value);
    };
    const auto file = folder.write(as_yaml ? "c.yaml" : "c.json", make(64).text);
    const Knobs knobs({file.string() + ":" + make(64).keys + "=batch"}, {"t"});
    ASSERT_EQ(knobs.value(Quantity::batch), 64) << make(64).text;
    ASSERT_TRUE(knobs.with(64, 1).files.empty());
    ASSERT_EQ(knobs.with(8, 1).files.begin()->second, make(8).text);
    ASSERT_EQ(knobs.with(1024, 1).files.begin()->second, make(1024).text);
  }
}

TEST(KnobsFuzz, DamagedFilesAreRefusedOrChangedBackAndForth) {
  const headroom::testing::TemporaryFolder folder;
  int accepted = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Dice dice(seed);
    const Document document = random_document(dice, dice.flip(), 64);
    const std::string name = dice.flip() ? "c.yaml" : "c.json";
    const auto file =
        folder.write(name, headroom::testing::mutated(document.text, "&a *a !!int - ? : |\n  64",
                                                      dice.source(), "&*!-?:|>{}[],#'\"\n 64"));
    const Words maps{file.string() + ":" + document.keys + "=batch",
                     file.string() + ":train.accum=accumulation"};
    try {
      const Knobs knobs(maps, {"t"});
      const long long first = *knobs.value(Quantity::batch);
      ++accepted;
      ASSERT_TRUE(knobs.with(first, 1).files.empty());
      folder.write(name, knobs.with(first + 1, 7).files.begin()->second);
      const Knobs other(maps, {"t"});
      ASSERT_EQ(other.value(Quantity::batch), first + 1);
      ASSERT_EQ(other.value(Quantity::accumulation), 7);
    } catch (const UsageError&) {
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 50);
}

}  // namespace
}  // namespace headroom::edit
