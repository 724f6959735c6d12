#pragma once

#include <cstddef>
#include <span>

#include "vision/image.hpp"

namespace hexlm {

/// The orientation (1 … 8) that an EXIF block states in its first directory; 1 when it states none or is
/// malformed, as viewers do. `exif` is the TIFF structure, with or without the "Exif\0\0" prefix.
int exif_orientation(std::span<const std::byte> exif);

/// Turns and mirrors a stored picture upright. `orientation` is EXIF's: the number of 0th row and column's
/// place, 1 being upright; 5 … 8 swap width and height.
Image apply_orientation(Image image, int orientation);

}  // namespace hexlm
