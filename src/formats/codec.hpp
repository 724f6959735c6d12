#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "formats/tensor.hpp"

namespace hexlm {

/// How the elements of one weight are stored.
///
/// Integer codecs hold an unsigned code q of `bits` bits per element and, per row and group of `group`
/// consecutive input channels, an fp16 (or fp32) scale Δ:
///   symmetric:  w = Δ · (q − 2^(bits−1))
///   asymmetric: w = Δ · q + offset          (offset of Δ's type; spec D.1 form (b): −Δ·zero point)
/// With `scale_bits`, Δ is stored in two levels (symmetric only): a signed integer s of that many bits per
/// group, kept as s + 2^(scale_bits−1), and an fp16 scale per row: Δ = fp16(row scale · s). Smaller groups
/// for the same bits. `group` 0 means one group per row. When `group` does not divide the columns, the last
/// group of every row is shorter; nothing is padded.
struct Codec {
  enum class Kind : uint8_t { f32, f16, bf16, integer };
  Kind kind = Kind::f32;
  int bits = 32;
  int64_t group = 0;
  bool symmetric = true;
  int scale_bits = 0;  ///< of a group's scale in two-level codecs; 0: fp16
  /// Scales and offsets are fp32 instead of fp16: for imported weights whose own do not fit fp16. Not in
  /// two-level codecs.
  bool wide_scales = false;

  int64_t scale_bytes() const { return wide_scales ? 4 : 2; }
  bool is_float() const { return kind != Kind::integer; }
  /// Groups in a row of `columns` elements (1 for per-channel, 0 for float codecs).
  int64_t groups(int64_t columns) const;
  bool is_two_level() const { return scale_bits != 0; }
  /// Bytes of one row's integer scales, packed like codes; 0 unless two-level.
  int64_t scale_row_bytes(int64_t columns) const;
  /// The codec that a reader of WeightViews sees: two-level scales are expanded to fp16.
  Codec expanded() const;
  /// Bytes of one row's codes or elements: bits are packed least significant first along the row, and every
  /// row starts on a whole byte.
  int64_t row_bytes(int64_t columns) const;
  bool operator==(const Codec&) const = default;
};

/// The spelling of docs/cli.md: "f32", "f16", "bf16", "w8", "w4", "w4g64", "w8g128a", "w4g32s6",
/// "w4g32a:f32".
std::string to_string(const Codec& codec);
/// Errors: usage, naming the text and the accepted forms. Bits 2–8, group 16–4096 or absent, scale bits 4–8
/// or absent.
Result<Codec> parse_codec(std::string_view text);

/// One weight as a backend reads it: a matrix (or vector, or any shape for float codecs) of the codec.
/// Integer codecs are matrices [rows, columns]: `data` is the codes, U8 [rows, row_bytes]; `scales` F16
/// (F32 with wide_scales) [rows, groups]; `offsets` the same when asymmetric, else empty.
struct WeightView {
  std::string name;
  Codec codec;
  std::vector<int64_t> shape;
  TensorView data;
  TensorView scales;
  TensorView offsets;
  /// Owns the bytes of weights that were computed (merged, repacked); empty when they lie in a mapped file.
  std::shared_ptr<const void> storage;

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t columns() const {
    int64_t product = 1;
    for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  }
  /// Of codes or elements, scales and offsets, whether the views hold them or not.
  uint64_t stored_bytes() const {
    const int64_t parts = codec.symmetric ? 1 : 2;
    return static_cast<uint64_t>(
        rows() * (codec.row_bytes(columns()) + codec.scale_bytes() * parts * codec.groups(columns())));
  }
};

/// Where a model's weights come from: a checkpoint (float) or a package (any codec). Thread-safe to read.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// `name` is the canonical parameter name (`layers.0.mlp.down_proj.weight`). Errors: bad_input, naming the
  /// file and the tensor, when it is absent or malformed.
  virtual Result<WeightView> find(std::string_view name) const = 0;
  /// What `find` would give, but its views may lack their bytes: for sources that compute them. Codec and
  /// shape are right. Errors: as `find`.
  virtual Result<WeightView> describe(std::string_view name) const { return find(name); }
  virtual bool contains(std::string_view name) const = 0;
  /// Tells the source that the weight's bytes were consumed, so that its pages may leave memory.
  virtual void release(const WeightView& weight) const = 0;
  /// File or folder, for messages.
  virtual std::string origin() const = 0;
};

}  // namespace hexlm
