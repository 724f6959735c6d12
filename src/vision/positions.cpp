#include "vision/positions.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace hexlm {
namespace {

/// Positions are 32-bit; a prompt that could pass this is refused rather than wrapped.
constexpr int64_t position_limit = int64_t{1} << 30;

/// Tokens of all images. Errors: bad_input for a grid that is empty or does not merge evenly, or a sum out of
/// range.
Result<int64_t> total_image_tokens(std::span<const ImageGrid> grids, int merge_size) {
  int64_t total = 0;
  for (const ImageGrid& grid : grids) {
    const auto usable = [](int64_t side) { return side > 0 && side <= 1 << 16; };
    if (merge_size <= 0 || !usable(grid.t) || !usable(grid.h) || !usable(grid.w) ||
        grid.h % merge_size != 0 || grid.w % merge_size != 0) {
      return fail(
          ErrorCode::bad_input,
          fmt::format("an image has a grid of {}x{}x{} patches: expected positive sides, multiples of {}",
                      grid.t, grid.h, grid.w, merge_size));
    }
    total += grid.tokens(merge_size);
    if (total > position_limit) return fail(ErrorCode::bad_input, "the images have too many tokens");
  }
  return total;
}

/// Appends the positions of one image or one run of text and moves `next` behind it.
class PositionWriter {
 public:
  PositionWriter(RopePositions& positions, size_t tokens, int32_t next) : positions_(positions), next_(next) {
    for (auto& axis : positions_.ids) axis.reserve(tokens);
  }

  void write_text_token() {
    append(next_, next_, next_);
    ++next_;
  }

  void write_image(const ImageGrid& grid, int merge_size) {
    const auto frames = static_cast<int32_t>(grid.t);
    const auto rows = static_cast<int32_t>(grid.h / merge_size);
    const auto columns = static_cast<int32_t>(grid.w / merge_size);
    for (int32_t t = 0; t < frames; ++t) {
      for (int32_t y = 0; y < rows; ++y) {
        for (int32_t x = 0; x < columns; ++x) append(next_ + t, next_ + y, next_ + x);
      }
    }
    next_ += std::max(rows, columns);
  }

  /// One more than the greatest position written.
  int32_t end() const { return end_; }

 private:
  void append(int32_t time, int32_t height, int32_t width) {
    positions_.ids[0].push_back(time);
    positions_.ids[1].push_back(height);
    positions_.ids[2].push_back(width);
    end_ = std::max({end_, time + 1, height + 1, width + 1});
  }

  RopePositions& positions_;
  int32_t next_;
  int32_t end_ = 0;
};

}  // namespace

Result<std::vector<int32_t>> expand_image_placeholders(std::span<const int32_t> tokens, int32_t image_token,
                                                       std::span<const ImageGrid> grids, int merge_size) {
  const auto placeholders = static_cast<size_t>(std::ranges::count(tokens, image_token));
  if (placeholders != grids.size()) {
    return fail(ErrorCode::bad_input,
                fmt::format("the prompt has {} image placeholder(s), and {} image(s) were given",
                            placeholders, grids.size()));
  }
  HEXLM_ASSIGN(const int64_t image_tokens, total_image_tokens(grids, merge_size));
  std::vector<int32_t> expanded;
  expanded.reserve(tokens.size() - placeholders + static_cast<size_t>(image_tokens));
  size_t image = 0;
  for (const int32_t token : tokens) {
    const int64_t count = token == image_token ? grids[image++].tokens(merge_size) : 1;
    expanded.insert(expanded.end(), static_cast<size_t>(count), token);
  }
  return expanded;
}

Result<RopePositions> rope_positions(std::span<const int32_t> tokens, int32_t image_token,
                                     std::span<const ImageGrid> grids, int merge_size, RopeStart start) {
  HEXLM_ASSIGN(const int64_t image_tokens, total_image_tokens(grids, merge_size));
  const int64_t placeholders = std::ranges::count(tokens, image_token);
  if (placeholders != image_tokens) {
    return fail(ErrorCode::bad_input,
                fmt::format("the prompt has {} image tokens, expected {} for {} image(s)", placeholders,
                            image_tokens, grids.size()));
  }
  const auto length = static_cast<int64_t>(tokens.size());
  // No position moves on by more than its image has tokens, so this bounds them all.
  if (start.index < 0 || start.position < 0 || start.index + length > position_limit ||
      start.position + length > position_limit) {
    return fail(ErrorCode::bad_input,
                fmt::format("a prompt of {} tokens at position {} is too long", length, start.position));
  }

  RopePositions result;
  PositionWriter writer(result, tokens.size(), start.position);
  size_t image = 0;
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i] != image_token) {
      writer.write_text_token();
      ++i;
      continue;
    }
    const auto count = static_cast<size_t>(grids[image].tokens(merge_size));
    const auto run = tokens.subspan(i, std::min(count, tokens.size() - i));
    const auto together =
        std::ranges::find_if(run, [&](int32_t id) { return id != image_token; }) - run.begin();
    if (static_cast<size_t>(together) != count) {
      return fail(ErrorCode::bad_input,
                  fmt::format("image {} has {} tokens, and the prompt has {} at its place", image + 1, count,
                              together));
    }
    writer.write_image(grids[image++], merge_size);
    i += count;
  }
  if (!tokens.empty()) {
    result.rope_delta = static_cast<int32_t>(writer.end() - (start.index + length));
  } else {
    result.rope_delta = start.position - start.index;
  }
  return result;
}

}  // namespace hexlm
