#include <array>
#include <fmt/format.h>

#include "quantization/encode.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {

Result<EncodedRows> encode_rtn(std::span<const float> rows, int64_t columns, const Codec& codec) {
  if (columns <= 0 || rows.size() % static_cast<size_t>(columns) != 0) {
    return fail(ErrorCode::runtime, fmt::format("encode_rtn: {} elements are not whole rows of {} columns",
                                                rows.size(), columns));
  }
  if (!codec.is_float() && (codec.bits < 2 || codec.bits > 8 || codec.group < 0)) {
    return fail(ErrorCode::runtime,
                fmt::format("encode_rtn: codec of {} bits in groups of {}, expected 2 to 8 bits", codec.bits,
                            codec.group));
  }
  EncodedRows encoded;
  const auto fault =
      encode_rows(reinterpret_cast<const std::byte*>(rows.data()), DType::f32,
                  static_cast<int64_t>(rows.size()) / columns, columns, codec, Method::rtn, encoded);
  if (fault) {
    return tl::unexpected<Error>(describe(*fault, codec, "weight", std::array{fault->row, fault->column}));
  }
  return encoded;
}

}  // namespace hexlm
