#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/cpu_features.hpp"
#include "formats/codec.hpp"
#include "kernels/cache_type.hpp"

namespace hexlm {

// Kernels are stateless, never allocate and never start threads; callers split the work and hand each call
// its range. All activations are float32 unless said otherwise; strides are in elements.

/// One weight matrix in its stored (row-major) form, see Codec. Pointers need not be aligned.
struct MatrixView {
  Codec codec;
  int64_t rows = 0;
  int64_t columns = 0;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;   ///< fp16 [rows, groups], integer codecs
  const std::byte* offsets = nullptr;  ///< fp16 [rows, groups], asymmetric codecs
};
MatrixView matrix_view(const WeightView& weight);

/// y[t, r] = Σ_c x[t, c] · w[r, c] + bias[r] for rows row_begin … row_end−1 and all tokens, float
/// activations, any codec (weights are dequantized on the way).
struct FloatLinearArguments {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t tokens = 0;
  MatrixView weight;
  const float* bias = nullptr;  ///< may be null
  float* y = nullptr;           ///< y[t · y_stride + r]
  int64_t y_stride = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  float* scratch = nullptr;  ///< float_linear_scratch(columns) floats, one per worker, 64-byte aligned
};

/// Integer weights rearranged for int8 dot products: tiles of 16 rows; in a tile, columns in groups of four;
/// for each group of four columns the 16 rows' four codes lie together (64 bytes at 8 bits; at 4 bits two
/// neighbouring groups share 64 bytes, the first in the low nibbles). Codes are unsigned. Columns are padded
/// to a multiple of `block` with the code of zero; rows to a multiple of 16. scales (and offsets) are fp16
/// [tile][group][16 rows].
struct PackedMatrix {
  int bits = 4;       ///< 4 or 8 (3-bit codes are packed as 4, 5 and 6 as 8)
  int zero_code = 8;  ///< the code of weight 0 for symmetric codecs; 0 when `offsets` is set
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t padded_columns = 0;
  int64_t block = 64;  ///< columns per activation scale: 32 or 64, divides the group
  int64_t group = 0;   ///< columns per weight scale; 0 = per row
  int64_t groups = 1;
  std::byte* codes = nullptr;
  uint16_t* scales = nullptr;
  uint16_t* offsets = nullptr;
};
/// The name of this layout. All sets read it, so weights prepacked for one processor suit every other.
inline constexpr std::string_view packed_layout = "tiles16x4";
/// The processors that `export --prepack` can be asked for.
inline constexpr std::array<std::string_view, 3> prepack_targets = {"cpu-x86-vnni", "cpu-arm-dotprod",
                                                                    "cpu-arm-i8mm"};
/// Fills sizes for a matrix; false when the codec has no int8 form (float, or a group that 32 doesn't
/// divide).
bool describe_packed(const MatrixView& matrix, PackedMatrix& packed);
size_t packed_code_bytes(const PackedMatrix& packed);
size_t packed_scale_bytes(const PackedMatrix& packed);
inline constexpr int64_t packed_tile_rows = 16;

/// Activations as int8 with one scale a block: x ≈ scale · value. `sums` are Σ value over the block.
struct QuantizedRows {
  int64_t rows = 0;
  int64_t padded_columns = 0;
  int64_t block = 64;
  int8_t* values = nullptr;  ///< [rows, padded_columns], 64-byte aligned
  float* scales = nullptr;   ///< [rows, padded_columns / block]
  int32_t* sums = nullptr;   ///< [rows, padded_columns / block]
};

struct Int8LinearArguments {
  const PackedMatrix* weight = nullptr;
  QuantizedRows x;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t tile_begin = 0;  ///< tiles of 16 rows; the last one may be partly used
  int64_t tile_end = 0;
};

/// Attention of `tokens` new queries over one key/value head's cache, which already holds their keys and
/// values: query token t (t counts from 0 in this step) sees entries 0 … past + t.
/// With `entries` set, every query sees entries 0 … entries − 1 instead: attention in both directions.
struct AttentionArguments {
  const float* query = nullptr;  ///< first of `heads` query heads of token 0; [tokens][query_stride]
  int64_t query_stride = 0;
  int64_t heads = 1;  ///< query heads of this key/value head, `head_dim` apart
  int64_t head_dim = 0;
  CacheType cache = CacheType::f32;
  const void* keys = nullptr;  ///< [entries, head_dim] of the cache type
  const void* values = nullptr;
  const float* key_scales = nullptr;  ///< [entries], of an int8 cache
  const float* value_scales = nullptr;
  int64_t past = 0;
  int64_t entries = 0;  ///< 0: causal
  int64_t token_begin = 0;
  int64_t token_end = 0;
  float scale = 1;
  float* output = nullptr;  ///< like query
  int64_t output_stride = 0;
  float* scratch = nullptr;  ///< attention_scratch(head_dim) floats, one per worker
};

/// One value head of the gated delta rule over `tokens` steps (spec A.4 steps 5 and 6); q and k are raw (this
/// normalises them), `state` is [key_dim, value_dim] and updated in place. Vector sets take tokens in
/// chunks of 64 from the call's first on, and few or left-over ones one by one: how a sequence is cut into
/// calls changes the rounding.
struct DeltaNetArguments {
  const float* query = nullptr;
  const float* key = nullptr;
  const float* value = nullptr;
  int64_t stride = 0;                ///< between tokens, of all three
  const float* log_decay = nullptr;  ///< g_t
  const float* beta = nullptr;       ///< after the sigmoid
  int64_t gate_stride = 0;           ///< between tokens, of log_decay and beta
  int64_t tokens = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float epsilon = 1e-6F;
  float* state = nullptr;
  float* output = nullptr;
  int64_t output_stride = 0;
  float* scratch = nullptr;  ///< delta_net_scratch(key_dim) floats, one per worker
};

/// Kernels for one instruction set; every entry is set (slow ones fall back to a lesser set's).
struct KernelSet {
  const char* name = "";  ///< "scalar", "avx2", "avx512", "avx512_vnni", …
  bool (*supported)(const CpuFeatures&) = nullptr;

  void (*float_linear)(const FloatLinearArguments&) = nullptr;
  /// Rearranges tiles tile_begin … tile_end−1.
  void (*pack)(const MatrixView&, PackedMatrix&, int64_t tile_begin, int64_t tile_end) = nullptr;
  /// Quantizes rows row_begin … row_end−1 of x [.., columns]; pads with zeros.
  void (*quantize_rows)(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out,
                        int64_t row_begin, int64_t row_end) = nullptr;
  void (*int8_linear)(const Int8LinearArguments&) = nullptr;
  /// One stored row as floats.
  void (*dequantize_row)(const MatrixView&, int64_t row, float* out) = nullptr;

  /// rows × dim; y may be x.
  void (*rms_norm)(const float* x, int64_t x_stride, const float* weight, float* y, int64_t y_stride,
                   int64_t rows, int64_t dim, float epsilon, float weight_offset) = nullptr;
  void (*gated_rms_norm)(const float* x, const float* gate, const float* weight, float* y, int64_t rows,
                         int64_t dim, float epsilon) = nullptr;
  /// rows × dim; y may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float* y, int64_t rows,
                     int64_t dim, float epsilon) = nullptr;
  /// x · Φ(x) as the tanh approximation, by the error function, and as x · sigmoid(1.702 x); y may be x.
  void (*gelu_tanh)(const float* x, float* y, int64_t count) = nullptr;
  void (*gelu_erf)(const float* x, float* y, int64_t count) = nullptr;
  void (*gelu_quick)(const float* x, float* y, int64_t count) = nullptr;
  /// In place over `heads` heads of one token; cosine and sine have rotary_dim / 2 entries.
  void (*rope)(float* x, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cosine,
               const float* sine) = nullptr;
  void (*add)(const float* a, const float* b, float* y, int64_t count) = nullptr;
  void (*silu_multiply)(const float* gate, const float* up, float* y, int64_t count) = nullptr;
  void (*sigmoid_multiply)(const float* x, const float* gate, float* y, int64_t count) = nullptr;
  void (*store_half)(const float* x, uint16_t* y, int64_t count) = nullptr;
  /// x ≈ scale · y with scale = max |x| / 127; where x is not finite the scale is NaN.
  void (*store_int8)(const float* x, int8_t* y, float* scale, int64_t count) = nullptr;
  void (*attention)(const AttentionArguments&) = nullptr;
  /// Depthwise causal convolution + SiLU of channels channel_begin … channel_end−1 over `tokens` tokens;
  /// `history` [taps−1, channels] holds the inputs before x and is updated.
  void (*causal_convolution)(const float* x, int64_t tokens, int64_t channels, const float* weight,
                             int64_t taps, float* history, float* y, int64_t channel_begin,
                             int64_t channel_end) = nullptr;
  void (*delta_net)(const DeltaNetArguments&) = nullptr;
};

int64_t float_linear_scratch(int64_t columns);
int64_t attention_scratch(int64_t head_dim);
int64_t delta_net_scratch(int64_t key_dim);

/// The scalar truth of src/kernels/reference/.
const KernelSet& reference_kernels();
/// Every set compiled in, best first; the last is the reference.
std::span<const KernelSet* const> kernel_sets();
/// The best set this processor supports, or the one `HEXLM_ISA` names. Errors: usage for an unknown name
/// (with the list), device when the processor lacks it.
Result<const KernelSet*> select_kernels();

}  // namespace hexlm
