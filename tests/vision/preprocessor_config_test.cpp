#include <gtest/gtest.h>

#include "vision/preprocess.hpp"

namespace hexlm {
namespace {

TEST(PreprocessorConfig, DefaultsAreTheProcessors) {
  const auto config = parse_preprocessor_config("{}", "p.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->factor(), 28);
  EXPECT_EQ(config->min_pixels, 3136);
  EXPECT_EQ(config->max_pixels, 1003520);
  EXPECT_EQ(config->patch_elements(), 1176);
}

TEST(PreprocessorConfig, NewAndOldKeyNames) {
  const auto newer = parse_preprocessor_config(
      R"({"patch_size":16,"size":{"shortest_edge":65536,"longest_edge":16777216},"image_mean":[0.5,0.5,0.5],
          "image_std":[0.5,0.5,0.5]})",
      "p.json");
  ASSERT_TRUE(newer) << newer.error().message;
  EXPECT_EQ(newer->factor(), 32);
  EXPECT_EQ(newer->min_pixels, 65536);
  EXPECT_EQ(newer->max_pixels, 16777216);
  EXPECT_EQ(newer->mean[2], 0.5F);
  EXPECT_EQ(newer->deviation[0], 0.5F);
  const auto older = parse_preprocessor_config(
      R"({"min_pixels":3136,"max_pixels":12845056,"size":{"shortest_edge":4,"longest_edge":8}})", "p.json");
  ASSERT_TRUE(older) << older.error().message;
  EXPECT_EQ(older->min_pixels, 3136);
  EXPECT_EQ(older->max_pixels, 12845056);
  const auto nested = parse_preprocessor_config(R"({"image_processor":{"patch_size":16}})", "p.json");
  ASSERT_TRUE(nested) << nested.error().message;
  EXPECT_EQ(nested->patch_size, 16);
}

TEST(PreprocessorConfig, StepsThatAreSwitchedOff) {
  const auto config =
      parse_preprocessor_config(R"({"do_resize":false,"do_rescale":false,"do_normalize":false})", "p.json");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->resize);
  EXPECT_EQ(config->rescale_factor, 1);
  EXPECT_EQ(config->mean[0], 0);
  EXPECT_EQ(config->deviation[0], 1);
}

TEST(PreprocessorConfig, RefusesWhatItCannotMean) {
  const auto message = [](const char* text) {
    const auto config = parse_preprocessor_config(text, "p.json");
    return config ? std::string("accepted") : config.error().message;
  };
  EXPECT_EQ(message(R"({"patch_size":0})"), "p.json: patch_size: expected an integer in 1 … 256, got 0");
  EXPECT_EQ(message(R"({"image_std":[0.5,0,0.5]})"),
            "p.json: image_std: expected three positive numbers, got [0.5,0,0.5]");
  EXPECT_EQ(message(R"({"min_pixels":200,"max_pixels":100})"),
            "p.json: expected at most 100 minimum pixels, got 200");
  EXPECT_EQ(message(R"({"resample":2})"), "p.json: resample: expected 3 (bicubic), got 2");
  for (const char* text : {"[]", R"({"size":3})", R"({"do_resize":1})", R"({"rescale_factor":-1})", "{",
                           R"({"max_pixels":18446744073709551615})", R"({"image_mean":["a",0,0]})"}) {
    EXPECT_NE(message(text), "accepted") << text;
  }
}

}  // namespace
}  // namespace hexlm
