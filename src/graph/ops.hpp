#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/shape.hpp"

namespace hexlm::op {

// Each op lists its inputs in (), its parameters in {}, its state in <> and its output after ->.
// Activations are float32 at this level; a backend may compute in less (docs/architecture.md, "Numbers").

/// (ids i32 [T]) {table [vocabulary, H]} -> [T, H]
struct Embedding {};

/// (x [..., I]) {weight [O, I]; optional bias [O]} -> [..., O]: y = x Wᵀ + b. A weight of more dimensions,
/// [O, …], counts as the matrix with its elements (spec B.2: a convolution whose kernel is its stride).
struct Linear {};

/// (x [..., D]) {weight [D]} -> [..., D]: y = x · rsqrt(mean(x²) + epsilon) · (weight + weight_offset).
/// `weight_offset` is 1 for the zero-centred norms (spec A.1).
struct RmsNorm {
  float epsilon = 1e-6F;
  float weight_offset = 0;
};

/// (x [..., D], gate [..., D]) {weight [D]} -> [..., D]: rms_norm(x) · weight · silu(gate) (spec A.1).
struct GatedRmsNorm {
  float epsilon = 1e-6F;
};

/// (x) -> `shape`: the same elements.
struct Reshape {
  Shape shape;
};

/// (x [..., D]) -> [..., end − begin]: elements begin … end−1 of the last dimension.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
};

/// (x [T, N, D], positions i32 [3, T]) -> [T, N, D]: rotates the pairs (i, i + R/2), i < R/2, by
/// position · inverse_frequency[i]; dimensions ≥ R pass through. cos and sin are multiplied by
/// `attention_factor`. Frequency i uses the position stream `stream[i]` (0 time, 1 height, 2 width).
/// Spec A.1 "RoPE" and "M-RoPE".
struct Rope {
  int64_t rotary_dim = 0;
  std::vector<float> inverse_frequencies;
  std::vector<uint8_t> stream;
  float attention_factor = 1;
};

/// (query [T, Nq, D], key [T, Nk, D], value [T, Nk, D]) <key_value_cache> -> [T, Nq·D]: appends key and value
/// to the cache and attends causally over all of it; query head h reads key/value head h / (Nq/Nk).
struct Attention {
  int64_t query_heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_dim = 0;
  float scale = 1;
};

/// (a, b) -> a + b
struct Add {};
/// (gate, up) -> silu(gate) · up
struct SiluMultiply {};
/// (x, gate) -> x · sigmoid(gate)
struct SigmoidMultiply {};

/// (x [T, C]) {weight [C, 1, taps]} <convolution> -> [T, C]: depthwise causal convolution, then SiLU; the
/// last tap multiplies the current token (spec A.4 step 2).
struct CausalConvolution {
  int64_t taps = 4;
};

/// (qkv [T, 2·Hk·dk + Hv·dv] after convolution, b [T, Hv], a [T, Hv]) {A_log [Hv], dt_bias [Hv]} <delta_net>
/// -> [T, Hv·dv]: the gated delta rule, spec A.4 steps 3–6.
struct GatedDeltaNet {
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float norm_epsilon = 1e-6F;
};

/// (x [T, H], router logits [T, E]) {gate, up [I, H] and down [H, I] of expert 0, of expert 1, …} -> [T, H]:
/// softmax over all experts, the top_k largest, renormalised when asked (spec A.2).
struct MixtureOfExperts {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t intermediate = 0;
  bool normalize = true;
};

/// (x [T, H], rows i32 [R]) -> [R, H]: row i of the output is row rows[i] of x.
struct GatherRows {};

/// (x [T, H], source [V, H], index i32 [T]) -> [T, H]: row t is row index[t] of `source`, or of x where
/// index[t] is −1: image features among the embeddings of text (spec B.4).
struct ReplaceRows {};
/// As ReplaceRows, but the row of `source` is added to x's (spec B.3, "Deepstack").
struct AddRows {};

/// (x [..., D]) {weight [D], bias [D]} -> [..., D]: (x − mean(x)) · rsqrt(variance(x) + epsilon) · weight +
/// bias
struct LayerNorm {
  float epsilon = 1e-6F;
};

/// (x) -> x · Φ(x), exactly or in one of its approximations (spec B.0).
struct Gelu {
  enum class Kind : uint8_t {
    tanh,   ///< x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2
    erf,    ///< x · (1 + erf(x / √2)) / 2
    quick,  ///< x · sigmoid(1.702 x)
  };
  Kind kind = Kind::tanh;
};

/// (index i32 [K, N], weight [K, N]) {table [rows, C]} -> [N, C]: row n is Σ_k weight[k, n] ·
/// table[index[k, n]] (spec B.2, the interpolated position embedding).
struct InterpolateRows {};

/// (qkv [N, 3 · heads · D], cosine [N, D/2], sine [N, D/2], ranges i32 [2, N]) -> [N, heads · D]: attention
/// of patches. A row of qkv is all heads' queries, then keys, then values. Queries and keys are rotated: the
/// pair (i, i + D/2) of row n by the angle with cosine[n, i] and sine[n, i]. Row n then attends, in both
/// directions, to rows ranges[0, n] … ranges[1, n] − 1, itself among them (spec B.3).
struct PatchAttention {
  int64_t heads = 0;
  int64_t head_dim = 0;
  float scale = 1;
};

}  // namespace hexlm::op

namespace hexlm {

using Op =
    std::variant<op::Embedding, op::Linear, op::RmsNorm, op::GatedRmsNorm, op::Reshape, op::Slice, op::Rope,
                 op::Attention, op::Add, op::SiluMultiply, op::SigmoidMultiply, op::CausalConvolution,
                 op::GatedDeltaNet, op::MixtureOfExperts, op::GatherRows, op::ReplaceRows, op::AddRows,
                 op::LayerNorm, op::Gelu, op::InterpolateRows, op::PatchAttention>;

/// "tanh", "erf", "quick"
std::string_view to_string(op::Gelu::Kind kind);

/// "linear", "rms_norm", "gated_delta_net", …
std::string_view op_name(const Op& op);

}  // namespace hexlm
