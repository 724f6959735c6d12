#include "quantization/calibration_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

class CalibrationText : public testing::Test {
 protected:
  CalibrationText()
      : tokenizer_(*Tokenizer::load(test_data("models/tiny-vl/tokenizer.json"))),
        template_(*ChatTemplate::parse(read_test_file(test_data("models/tiny-vl/chat_template.jinja")),
                                       "template")) {}

  Result<CalibrationSet> load(std::vector<std::string> files, int64_t samples = 24, uint64_t seed = 0,
                              int64_t tokens = 64) {
    return load_calibration({std::move(files), samples, tokens, seed},
                            {&tokenizer_, &template_, Json::object()});
  }
  Result<CalibrationSet> load_content(const std::string& name, const std::string& content) {
    write_test_file(folder_.file(name), content);
    return load({folder_.file(name)}, 24, 0, 512);
  }

  TemporaryFolder folder_;
  Tokenizer tokenizer_;
  ChatTemplate template_;
};

const std::string english = test_data("text/calibration_en.txt");
const std::string chinese = test_data("text/calibration_zh.txt");
const std::string chats = test_data("text/chat_alpaca.json");

TEST(ScriptOf, LooksAtLetters) {
  EXPECT_EQ(script_of("The quick brown fox, 123!"), DocumentScript::latin);
  EXPECT_EQ(script_of("殷勤欲送春归去。"), DocumentScript::chinese);
  EXPECT_EQ(script_of("翻译成英文：我有 many sheep"), DocumentScript::chinese);
  EXPECT_EQ(script_of("Привет, мир"), DocumentScript::other);
  EXPECT_EQ(script_of("123 … "), DocumentScript::other);
}

TEST_F(CalibrationText, GivesChineseAtLeastAsMuchAsLatin) {
  const auto set = load({english, chinese, chats});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->sequences.size(), 24U);
  int64_t of_chinese = 0;
  int64_t of_latin = 0;
  std::set<std::string> files;
  for (const CalibrationShare& share : set->shares) {
    (share.script == DocumentScript::chinese ? of_chinese : of_latin) += share.taken;
    if (share.taken > 0) files.insert(share.file);
  }
  EXPECT_GE(of_chinese, of_latin);
  EXPECT_GT(of_latin, 8);
  EXPECT_EQ(files.size(), 3U);
  EXPECT_TRUE(set->warnings.empty()) << set->warnings[0];
}

TEST_F(CalibrationText, SamplesDependOnTheSeedAlone) {
  const auto first = load({english, chinese});
  const auto again = load({english, chinese});
  const auto other = load({english, chinese}, 24, 1);
  ASSERT_TRUE(first && again && other);
  EXPECT_EQ(first->sequences, again->sequences);
  EXPECT_EQ(first->hash, again->hash);
  EXPECT_NE(first->hash, other->hash);
  const std::set<std::vector<int32_t>> distinct(first->sequences.begin(), first->sequences.end());
  EXPECT_EQ(distinct.size(), first->sequences.size());
}

TEST_F(CalibrationText, WarnsAboutWhatIsMissing) {
  const auto latin = load({english});
  ASSERT_TRUE(latin);
  EXPECT_THAT(latin->warnings, testing::Contains(HasSubstr("no Chinese")));
  const auto han = load({chinese});
  ASSERT_TRUE(han);
  EXPECT_THAT(han->warnings, testing::Contains(HasSubstr("no Latin")));
  const auto few = load_content("few.txt", "A short text. 一段短文。");
  ASSERT_TRUE(few);
  EXPECT_THAT(few->warnings, testing::Contains(HasSubstr("only 1 of 24 calibration samples")));
  EXPECT_THAT(few->warnings, testing::Contains(HasSubstr("the shortest sample has")));
}

TEST_F(CalibrationText, ReadsTheFormsOfTrainingData) {
  const auto lines = load_content("mixed.jsonl",
                                  "{\"text\": \"plain\"}\n\n{\"instruction\": \"Say hi\", \"input\": \"to "
                                  "Tom\", \"output\": \"Hi Tom\"}\n"
                                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}]}\n");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->sequences.size(), 1U);
  const std::string text = tokenizer_.decode(lines->sequences[0]);
  EXPECT_THAT(text, testing::StartsWith("plain"));
  EXPECT_THAT(text, HasSubstr("<|im_start|>user\nSay hi\nto Tom<|im_end|>"));
  EXPECT_THAT(text, HasSubstr("Hi Tom"));
  EXPECT_THAT(text, HasSubstr("Why?"));
}

TEST_F(CalibrationText, RefusesWhatIsNoText) {
  EXPECT_THAT(load_content("empty.txt", " \n\n").error().message, HasSubstr("no calibration text"));
  EXPECT_THAT(load_content("a.jsonl", "{\"text\": \"a b c\"}\n{\"prompt\": 1}\n").error().message,
              HasSubstr("object 2 has neither"));
  EXPECT_THAT(load_content("b.jsonl", "{\"text\": \n").error().message, HasSubstr("b.jsonl:1"));
  EXPECT_THAT(load_content("c.json", "{}").error().message, HasSubstr("expected an array"));
  EXPECT_THAT(load_content("d.txt", "ab\xff cd").error().message, HasSubstr("d.txt"));
  EXPECT_FALSE(load({folder_.file("missing.txt")}));
}

}  // namespace
}  // namespace hexlm
