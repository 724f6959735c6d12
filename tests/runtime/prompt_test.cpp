#include "runtime/prompt.hpp"

#include <gtest/gtest.h>

namespace hexlm {
namespace {

constexpr int32_t image = 99;

std::shared_ptr<const ImageFeatures> features_of(int64_t tokens) {
  auto features = std::make_shared<ImageFeatures>();
  features->tokens = tokens;
  return features;
}

/// 1 2 [3 image tokens] 3 [2 image tokens] 4 5
Prompt two_images() {
  return {{1, 2, image, image, image, 3, image, image, 4, 5}, {features_of(3), features_of(2)}};
}

TEST(CommonPrefix, CountsEqualTokens) {
  EXPECT_EQ(common_prefix({{1, 2, 3}, {}}, {{1, 2, 4, 5}, {}}, -1), 2);
  EXPECT_EQ(common_prefix({{1, 2, 3, 4}, {}}, {{1, 2}, {}}, -1), 2);
  EXPECT_EQ(common_prefix({}, {{1}, {}}, -1), 0);
  const Prompt prompt = two_images();
  EXPECT_EQ(common_prefix(prompt, prompt, image), 10);
}

TEST(CommonPrefix, AnotherImageOfTheSameSizeEndsIt) {
  const Prompt a = two_images();
  Prompt b = a;
  b.images[1] = features_of(2);
  EXPECT_EQ(common_prefix(a, b, image), 6);
  EXPECT_EQ(common_prefix(b, a, image), 6);
  b.images[0] = features_of(3);
  EXPECT_EQ(common_prefix(a, b, image), 2);
}

TEST(CommonPrefix, NeverCutsAnImage) {
  const Prompt whole = two_images();
  // What a session holds after an interrupt in the middle of the second image.
  Prompt held = whole;
  held.tokens.resize(7);
  EXPECT_EQ(common_prefix(held, whole, image), 6);
  EXPECT_EQ(common_prefix(whole, held, image), 6);
  held.tokens.resize(4);
  EXPECT_EQ(common_prefix(held, whole, image), 2);
  // The first image is longer in one of them.
  const Prompt longer{{1, 2, image, image, image, image, 3}, {features_of(4)}};
  EXPECT_EQ(common_prefix(whole, longer, image), 2);
}

TEST(TakePrefix, IsTheRestOfDropPrefix) {
  const Prompt prompt = two_images();
  for (const int64_t count : {0, 1, 2, 5, 6, 8, 9, 10}) {
    const auto head = take_prefix(prompt, count, image);
    const auto rest = drop_prefix(prompt, count, image);
    ASSERT_TRUE(head) << head.error().message;
    ASSERT_TRUE(rest) << rest.error().message;
    EXPECT_EQ(head->tokens.size(), static_cast<size_t>(count));
    Prompt joined = *head;
    joined.tokens.insert(joined.tokens.end(), rest->tokens.begin(), rest->tokens.end());
    joined.images.insert(joined.images.end(), rest->images.begin(), rest->images.end());
    EXPECT_EQ(joined.tokens, prompt.tokens) << count;
    EXPECT_EQ(joined.images, prompt.images) << count;
  }
  for (const int64_t count : {-1, 3, 4, 7, 11}) {
    const auto head = take_prefix(prompt, count, image);
    ASSERT_FALSE(head) << count;
    EXPECT_EQ(head.error().code, ErrorCode::usage);
  }
  EXPECT_EQ(whole_prefix(prompt, 4, image), 2);
  EXPECT_EQ(whole_prefix(prompt, 7, image), 6);
  EXPECT_EQ(whole_prefix(prompt, 6, image), 6);
}

}  // namespace
}  // namespace hexlm
