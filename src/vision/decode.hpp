#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vision/image.hpp"

namespace hexlm {

/// The decoder of each format, which `decode_image` chooses by content. Contract and errors are its own.
Result<Image> decode_jpeg(std::span<const std::byte> file, const std::string& origin,
                          const DecodeLimits& limits);
Result<Image> decode_png(std::span<const std::byte> file, const std::string& origin,
                         const DecodeLimits& limits);
Result<Image> decode_webp(std::span<const std::byte> file, const std::string& origin,
                          const DecodeLimits& limits);

/// Black, `width` x `height`. Errors: bad_input when a side is 0 or the pixels exceed the limit.
Result<Image> allocate_image(uint64_t width, uint64_t height, const std::string& origin,
                             const DecodeLimits& limits);
/// The error of a file that a decoder gave up on, with the decoder's reason.
Error broken_image(const std::string& origin, std::string_view format, std::string_view reason);

}  // namespace hexlm
