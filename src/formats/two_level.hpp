#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/codec.hpp"

namespace hexlm {

/// Δ of every group of a two-level codec as fp16 [rows, groups]: fp16(row scale · s), the values that every
/// backend multiplies with. `group_scales` is U8 [rows, scale_row_bytes], `row_scales` F16 [rows].
std::vector<uint16_t> expand_scales(const Codec& codec, int64_t rows, int64_t columns,
                                    std::span<const std::byte> group_scales,
                                    std::span<const std::byte> row_scales);

}  // namespace hexlm
