#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "formats/json.hpp"

namespace hexlm {

/// The element types of GGUF tensors that are read. Numbers are the file's.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};
/// "Q4_K", …
std::string_view to_string(GgufType type);
/// Elements and bytes of one block, the unit that rows consist of.
struct GgufBlock {
  int64_t elements = 1;
  int64_t bytes = 4;
};
GgufBlock block_of(GgufType type);

/// A checked view of one tensor: `bytes` holds exactly the blocks of its shape (rows are whole blocks).
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<int64_t> shape;  ///< outermost first, as in safetensors (the file lists it innermost first)
  std::span<const std::byte> bytes;

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
};

struct GgufContent {
  std::map<std::string, Json, std::less<>> metadata;  ///< scalars, strings and arrays of them
  std::vector<GgufTensor> tensors;                    ///< in file order
};

/// Checks a whole GGUF file of version 2 or 3. Errors: bad_input naming `origin`, what was read, where,
/// expected and got; unsupported for other versions and for tensor types that are not read (names the
/// tensor).
Result<GgufContent> parse_gguf(std::span<const std::byte> file, const std::string& origin);

/// A memory-mapped GGUF file. Tensors point into it.
class GgufFile {
 public:
  static Result<std::shared_ptr<const GgufFile>> open(const std::string& path);

  const GgufContent& content() const { return content_; }
  const MappedFile& file() const { return *file_; }
  const GgufTensor* find(std::string_view name) const;
  /// nullptr when absent.
  const Json* metadata(std::string_view key) const;

 private:
  GgufFile() = default;
  std::shared_ptr<MappedFile> file_;
  GgufContent content_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// Whether a path names a GGUF file: by its extension.
bool is_gguf_path(const std::string& path);

}  // namespace hexlm
