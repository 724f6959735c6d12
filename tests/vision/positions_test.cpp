#include "vision/positions.hpp"

#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

constexpr int32_t image_token = 500;

std::vector<ImageGrid> one_grid(int64_t h, int64_t w) { return {ImageGrid{1, h, w}}; }

class ReferencePositions : public testing::TestWithParam<const char*> {};

TEST_P(ReferencePositions, AreExact) {
  const std::string folder = std::string("reference/") + GetParam();
  const auto reference = read_json(test_data(folder + "/case.json"));
  ASSERT_TRUE(reference) << reference.error().message;
  const auto config = read_json(test_data(folder + "/checkpoint/config.json"));
  ASSERT_TRUE(config) << config.error().message;
  const auto token = (*config)["image_token_id"].get<int32_t>();
  ASSERT_EQ((*reference)["images"].size(), 3U);
  for (const Json& entry : (*reference)["images"]) {
    SCOPED_TRACE(entry["image"].get<std::string>());
    const auto grid = entry["grid_thw"].get<std::vector<int64_t>>();
    const std::vector<ImageGrid> grids = {{grid[0], grid[1], grid[2]}};
    const auto tokens = entry["input_ids"].get<std::vector<int32_t>>();
    const auto positions = rope_positions(tokens, token, grids, 2);
    ASSERT_TRUE(positions) << positions.error().message;
    for (size_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(positions->ids[axis], entry["position_ids_thw"][axis].get<std::vector<int32_t>>());
    }
    EXPECT_EQ(positions->rope_delta, entry["rope_delta"].get<int32_t>());

    std::vector<int32_t> prompt = tokens;
    const auto [first, last] =
        std::ranges::unique(prompt, [&](int32_t a, int32_t b) { return a == token && b == token; });
    prompt.erase(first, last);
    const auto expanded = expand_image_placeholders(prompt, token, grids, 2);
    ASSERT_TRUE(expanded) << expanded.error().message;
    EXPECT_EQ(*expanded, tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ReferencePositions,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Positions, TextCountsUp) {
  const std::vector<int32_t> tokens = {7, 8, 9};
  const auto positions = rope_positions(tokens, image_token, {}, 2);
  ASSERT_TRUE(positions);
  for (const auto& axis : positions->ids) EXPECT_EQ(axis, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(positions->rope_delta, 0);
}

TEST(Positions, ImagesSideBySide) {
  const std::vector<int32_t> tokens = {1, 500, 500, 500, 2};
  const std::vector<ImageGrid> grids = {{1, 2, 4}, {1, 2, 2}};
  const auto positions = rope_positions(tokens, image_token, grids, 2);
  ASSERT_TRUE(positions) << positions.error().message;
  EXPECT_EQ(positions->ids[0], (std::vector<int32_t>{0, 1, 1, 3, 4}));
  EXPECT_EQ(positions->ids[1], (std::vector<int32_t>{0, 1, 1, 3, 4}));
  EXPECT_EQ(positions->ids[2], (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(positions->rope_delta, 0);
}

/// A second turn, started where the first one's cache ends, gets the positions that one long prompt would.
TEST(Positions, ALaterTurnGoesOn) {
  const std::vector<int32_t> first = {1, 500, 500, 500, 500, 2};
  const std::vector<int32_t> second = {3, 500, 500, 500, 500, 4, 5};
  std::vector<int32_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  const std::vector<ImageGrid> grids = {{1, 4, 4}, {1, 4, 4}};
  const auto whole = rope_positions(both, image_token, grids, 2);
  const auto start = rope_positions(first, image_token, std::span(grids).first(1), 2);
  ASSERT_TRUE(whole && start);
  EXPECT_EQ(start->rope_delta, -2);
  const auto cached = static_cast<int32_t>(first.size());
  const auto later =
      rope_positions(second, image_token, std::span(grids).last(1), 2, {cached, cached + start->rope_delta});
  ASSERT_TRUE(later);
  for (size_t axis = 0; axis < 3; ++axis) {
    const std::vector<int32_t> expected(whole->ids[axis].begin() + cached, whole->ids[axis].end());
    EXPECT_EQ(later->ids[axis], expected);
  }
  EXPECT_EQ(later->rope_delta, whole->rope_delta);
  const auto nothing = rope_positions({}, image_token, {}, 2, {cached, cached + start->rope_delta});
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->rope_delta, start->rope_delta);
}

TEST(Positions, MismatchesNameBothNumbers) {
  const std::vector<int32_t> three = {1, 500, 500, 500, 2};
  const auto fewer = rope_positions(three, image_token, one_grid(4, 4), 2);
  ASSERT_FALSE(fewer);
  EXPECT_EQ(fewer.error().code, ErrorCode::bad_input);
  EXPECT_EQ(fewer.error().message, "the prompt has 3 image tokens, expected 4 for 1 image(s)");
  const std::vector<int32_t> divided = {500, 500, 1, 500, 500};
  const auto gap = rope_positions(divided, image_token, one_grid(4, 4), 2);
  ASSERT_FALSE(gap);
  EXPECT_EQ(gap.error().message, "image 1 has 4 tokens, and the prompt has 2 at its place");
  const auto images = expand_image_placeholders(three, image_token, one_grid(4, 4), 2);
  ASSERT_FALSE(images);
  EXPECT_EQ(images.error().message, "the prompt has 3 image placeholder(s), and 1 image(s) were given");
  const std::vector<int32_t> one = {500};
  EXPECT_FALSE(expand_image_placeholders(one, image_token, one_grid(3, 4), 2));
  EXPECT_FALSE(rope_positions(one, image_token, one_grid(0, 4), 2));
  EXPECT_FALSE(rope_positions(one, image_token, one_grid(2, 2), 0));
}

}  // namespace
}  // namespace hexlm
