#include "quantization/calibration_text.hpp"

#include <algorithm>
#include <filesystem>
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
    return load_calibration(
        {std::move(files), samples, tokens, seed},
        {&tokenizer_, &template_, Json::object(), vision_ ? &preprocessor_ : nullptr, image_token_});
  }
  Result<CalibrationSet> load_content(const std::string& name, const std::string& content) {
    write_test_file(folder_.file(name), content);
    return load({folder_.file(name)}, 24, 0, 512);
  }

  TemporaryFolder folder_;
  Tokenizer tokenizer_;
  ChatTemplate template_;
  PreprocessorConfig preprocessor_ =
      *load_preprocessor_config(test_data("models/tiny-vl/preprocessor_config.json"));
  int32_t image_token_ = 6140;
  bool vision_ = true;
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

TEST_F(CalibrationText, ShowsImagesInTheirPlaces) {
  std::filesystem::copy_file(test_data("images/made/mode_rgb.png"), folder_.file("a.png"));
  std::filesystem::copy_file(test_data("images/made/lossy.webp"), folder_.file("b.webp"));
  const std::string content =
      R"({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},)"
      R"( {"role": "assistant", "content": "A square."}], "images": ["a.png"]})"
      "\n"
      R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "image", "image": "b.webp"}]}]})"
      "\n{\"text\": \"plain words about something\"}\n";
  const auto set = load_content("images.jsonl", content);
  ASSERT_TRUE(set) << set.error().message;
  ASSERT_EQ(set->sequences.size(), 3U);
  EXPECT_EQ(set->images.size(), 2U);  // one of them is shown twice
  EXPECT_EQ(set->texts().size(), 1U);
  EXPECT_TRUE(set->has_images());
  for (size_t i = 0; i < 3; ++i) {
    int64_t tokens = 0;
    for (const size_t image : set->images_of(i))
      tokens += set->images[image].grid.tokens(preprocessor_.merge_size);
    EXPECT_EQ(std::count(set->sequences[i].begin(), set->sequences[i].end(), image_token_), tokens) << i;
  }
  vision_ = false;
  EXPECT_THAT(load_content("images.jsonl", content).error().message, HasSubstr("the model sees no images"));
}

TEST_F(CalibrationText, NamesWhatIsWrongWithImages) {
  EXPECT_THAT(load_content("x.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})")
                  .error()
                  .message,
              HasSubstr("its image 1 names no file"));
  const auto with = [&](const std::string& list) {
    return load_content(
               "y.jsonl",
               R"({"messages": [{"role": "user", "content": [{"type": "image"}]}], "images": )" + list + "}")
        .error()
        .message;
  };
  EXPECT_THAT(with("[\"none.png\"]"), HasSubstr("none.png"));
  EXPECT_THAT(with("[\"a.png\", \"b.png\"]"), HasSubstr("2 files in \"images\", 1 parts"));
  EXPECT_THAT(with("3"), HasSubstr("is no list of files"));
  write_test_file(folder_.file("broken.png"), "\x89PNG....");
  EXPECT_THAT(with("[\"broken.png\"]"), HasSubstr("broken.png"));
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
