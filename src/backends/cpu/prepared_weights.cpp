#include "backends/cpu/prepared_weights.hpp"

#include <fmt/format.h>
#include <utility>
#include <variant>

#include "base/text.hpp"

namespace hexlm {
namespace {

/// Two cache lines, as packages align their tensors.
constexpr size_t part_alignment = 128;

/// Elements of a shape; false when they overflow.
bool count_elements(std::span<const int64_t> shape, int64_t& elements) {
  elements = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) return false;
  }
  return true;
}

/// The kernels trust sizes, so the bytes of every part are compared with what the shape and codec ask for.
Status check_bytes(const WeightView& view, int64_t elements, const std::string& origin) {
  const int64_t columns = view.columns();
  const int64_t rows = columns == 0 ? 0 : elements / columns;
  const auto part = [&](const char* what, size_t got, int64_t expected) -> Status {
    if (std::cmp_equal(got, expected)) return {};
    return fail(ErrorCode::bad_input, fmt::format("{}: {} of {} as {} take {} bytes, found {}", origin, what,
                                                  view.name, to_string(view.codec), expected, got));
  };
  HEXLM_TRY(part("the elements", view.data.bytes.size(), rows * view.codec.row_bytes(columns)));
  const int64_t scale_bytes =
      view.codec.is_float() ? 0 : view.codec.scale_bytes() * rows * view.codec.groups(columns);
  HEXLM_TRY(part("the scales", view.scales.bytes.size(), scale_bytes));
  const bool has_offsets = !view.codec.is_float() && !view.codec.symmetric;
  return part("the offsets", view.offsets.bytes.size(), has_offsets ? scale_bytes : 0);
}

/// Takes `bytes` from the end of a buffer that is being laid out; false on overflow.
bool reserve_part(size_t& total, size_t bytes, size_t& offset) {
  offset = total;
  const size_t padded = (bytes + part_alignment - 1) / part_alignment * part_alignment;
  return padded >= bytes && !__builtin_add_overflow(total, padded, &total);
}

}  // namespace

void PreparedWeights::find_readers(const Graph& graph) {
  entries_.resize(graph.parameters().size());
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      Entry& entry = entries_[static_cast<size_t>(node.parameters[i].index)];
      if (std::holds_alternative<op::Embedding>(node.op) ||
          std::holds_alternative<op::InterpolateRows>(node.op)) {
        entry.is_table = true;
      } else if (std::holds_alternative<op::MixtureOfExperts>(node.op) ||
                 (std::holds_alternative<op::Linear>(node.op) && i == 0)) {
        entry.is_matrix = true;
      } else {
        entry.is_vector = true;
      }
    }
  }
}

Status PreparedWeights::find_views(const Graph& graph, Precision precision) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    Entry& entry = entries_[i];
    HEXLM_ASSIGN(entry.view, source_->find(parameter.name));
    if (entry.view.shape != parameter.shape) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: {} has shape {}, the model needs {}", source_->origin(), parameter.name,
                              format_shape(entry.view.shape), format_shape(parameter.shape)));
    }
    if (!count_elements(parameter.shape, entry.elements)) {
      return fail(ErrorCode::bad_input, fmt::format("{}: {} has too large a shape {}", source_->origin(),
                                                    parameter.name, format_shape(parameter.shape)));
    }
    HEXLM_TRY(check_bytes(entry.view, entry.elements, source_->origin()));
    if (entry.is_vector && !entry.view.codec.is_float()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: {} is stored as {}, expected f32, f16 or bf16", source_->origin(),
                              parameter.name, to_string(entry.view.codec)));
    }
    if (!entry.is_matrix && !entry.is_table) continue;
    entry.matrix.stored = matrix_view(entry.view);
    entry.matrix.rows = entry.view.rows();
    entry.matrix.columns = entry.view.columns();
    const bool exact = precision == Precision::high || parameter.role == ParameterRole::sensitive;
    entry.matrix.is_packed =
        entry.is_matrix && !exact && describe_packed(entry.matrix.stored, entry.matrix.packed);
  }
  return {};
}

Status PreparedWeights::allocate() {
  size_t floats = 0;
  size_t packed = 0;
  bool fits = true;
  for (Entry& entry : entries_) {
    if (entry.is_vector) {
      entry.vector_offset = floats;
      fits = fits &&
             !__builtin_add_overflow(floats, (static_cast<size_t>(entry.elements) + 15) / 16 * 16, &floats);
    }
    if (entry.matrix.is_packed) {
      const PackedMatrix& form = entry.matrix.packed;
      fits = fits && reserve_part(packed, packed_code_bytes(form), entry.code_offset) &&
             reserve_part(packed, packed_scale_bytes(form), entry.scale_offset);
      if (!entry.view.codec.symmetric) {
        fits = fits && reserve_part(packed, packed_scale_bytes(form), entry.offset_offset);
      }
    } else if (entry.is_matrix) {
      bytes_ += entry.view.stored_bytes();
    }
    if (entry.is_table) bytes_ += entry.view.stored_bytes();
  }
  if (!fits || floats > SIZE_MAX / sizeof(float)) {
    return fail(ErrorCode::limit, "the prepared weights do not fit into an address space");
  }
  HEXLM_ASSIGN(vectors_, AlignedBuffer::allocate(floats * sizeof(float)));
  HEXLM_ASSIGN(packed_, AlignedBuffer::allocate(packed));
  bytes_ += vectors_.size() + packed_.size();
  return {};
}

void PreparedWeights::pack_all(const KernelSet& kernels, ThreadPool& pool) {
  for (Entry& entry : entries_) {
    PreparedMatrix& matrix = entry.matrix;
    if (!matrix.is_packed) continue;
    matrix.packed.codes = packed_.data() + entry.code_offset;
    matrix.packed.scales = reinterpret_cast<uint16_t*>(packed_.data() + entry.scale_offset);
    if (!entry.view.codec.symmetric) {
      matrix.packed.offsets = reinterpret_cast<uint16_t*>(packed_.data() + entry.offset_offset);
    }
    // A few tiles at a time: neighbouring rows of the source lie on the same pages.
    pool.run(matrix.tiles(), 4, [&](int64_t begin, int64_t end, int) {
      kernels.pack(matrix.stored, matrix.packed, begin, end);
    });
    if (entry.is_table) continue;
    source_->release(entry.view);
    entry.view.storage.reset();
  }
}

void PreparedWeights::convert_vectors(const KernelSet& kernels) {
  for (const Entry& entry : entries_) {
    if (!entry.is_vector || entry.elements == 0) continue;
    MatrixView row = matrix_view(entry.view);
    row.rows = 1;
    row.columns = entry.elements;
    kernels.dequantize_row(row, 0, vectors_.as<float>() + entry.vector_offset);
  }
}

Result<PreparedWeights> PreparedWeights::prepare(const Graph& graph,
                                                 std::shared_ptr<const WeightSource> source,
                                                 Precision precision, const KernelSet& kernels,
                                                 ThreadPool& pool) {
  PreparedWeights weights;
  weights.source_ = std::move(source);
  weights.find_readers(graph);
  HEXLM_TRY(weights.find_views(graph, precision));
  HEXLM_TRY(weights.allocate());
  weights.pack_all(kernels, pool);
  weights.convert_vectors(kernels);
  return weights;
}

}  // namespace hexlm
