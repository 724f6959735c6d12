#include "formats/gguf.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "formats/tensor_size.hpp"

namespace hexlm {
namespace {

constexpr uint32_t gguf_magic = 0x46554747;  // "GGUF"
constexpr uint64_t most_dimensions = 4;
constexpr uint64_t default_alignment = 32;
/// Names and keys are a few dozen bytes; the largest real strings are chat templates of some 10 kB.
constexpr uint64_t longest_name = 1024;
constexpr uint64_t longest_string = uint64_t{16} << 20;
/// Vocabularies have a few hundred thousand entries. Each takes more memory than file.
constexpr uint64_t longest_array = uint64_t{1} << 22;

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct TypeFacts {
  GgufType type;
  std::string_view name;
  GgufBlock block;
};
constexpr std::array<TypeFacts, 9> type_facts = {{{GgufType::f32, "F32", {1, 4}},
                                                  {GgufType::f16, "F16", {1, 2}},
                                                  {GgufType::bf16, "BF16", {1, 2}},
                                                  {GgufType::q4_0, "Q4_0", {32, 18}},
                                                  {GgufType::q4_1, "Q4_1", {32, 20}},
                                                  {GgufType::q8_0, "Q8_0", {32, 34}},
                                                  {GgufType::q4_k, "Q4_K", {256, 144}},
                                                  {GgufType::q5_k, "Q5_K", {256, 176}},
                                                  {GgufType::q6_k, "Q6_K", {256, 210}}}};

const TypeFacts* facts_of(uint32_t type) {
  for (const TypeFacts& facts : type_facts) {
    if (static_cast<uint32_t>(facts.type) == type) return &facts;
  }
  return nullptr;
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> file, const std::string& origin) : file_(file), origin_(origin) {}

  Result<GgufContent> read() {
    uint32_t magic = 0;
    uint32_t version = 0;
    HEXLM_TRY(number(magic, "magic"));
    if (magic != gguf_magic) return bad("begins with other bytes than \"GGUF\"");
    HEXLM_TRY(number(version, "version"));
    if (version != 2 && version != 3) {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: GGUF version {}, expected 2 or 3", origin_, version),
                  "convert the model again with a current llama.cpp");
    }
    uint64_t tensors = 0;
    uint64_t pairs = 0;
    HEXLM_TRY(number(tensors, "tensor count"));
    HEXLM_TRY(number(pairs, "metadata count"));
    // A pair takes at least 13 bytes, a tensor's description 24: more can't be in the file.
    HEXLM_TRY(check_count(pairs, 13, "metadata pairs"));
    HEXLM_TRY(check_count(tensors, 24, "tensors"));
    for (uint64_t i = 0; i < pairs; ++i) HEXLM_TRY(pair());
    for (uint64_t i = 0; i < tensors; ++i) HEXLM_TRY(tensor());
    HEXLM_TRY(place_tensors());
    return std::move(content_);
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin_, what),
                "the file is damaged or incomplete: download it again");
  }

  uint64_t left() const { return file_.size() - position_; }

  Status check_count(uint64_t count, uint64_t least_bytes, const char* what) const {
    if (count <= left() / least_bytes) return {};
    return bad(
        fmt::format("{} {} at byte {} do not fit in the {} bytes left", count, what, position_, left()));
  }

  template <class Number>
  Status number(Number& out, const char* what) {
    if (left() < sizeof(out)) return bad(fmt::format("ends at byte {} within its {}", file_.size(), what));
    std::memcpy(&out, file_.data() + position_, sizeof(out));
    position_ += sizeof(out);
    return {};
  }

  Status string(std::string& out, uint64_t limit, const char* what) {
    uint64_t size = 0;
    HEXLM_TRY(number(size, what));
    if (size > limit || size > left()) {
      return bad(fmt::format("{} at byte {} has {} bytes, at most {} are possible", what, position_, size,
                             std::min(limit, left())));
    }
    out.assign(reinterpret_cast<const char*>(file_.data() + position_), static_cast<size_t>(size));
    position_ += static_cast<size_t>(size);
    return {};
  }

  template <class Number>
  Result<Json> json_number() {
    Number value = 0;
    HEXLM_TRY(number(value, "metadata value"));
    return Json(value);
  }

  Result<Json> scalar(uint32_t type, const std::string& key) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::u8:
        return json_number<uint8_t>();
      case ValueType::i8:
        return json_number<int8_t>();
      case ValueType::u16:
        return json_number<uint16_t>();
      case ValueType::i16:
        return json_number<int16_t>();
      case ValueType::u32:
        return json_number<uint32_t>();
      case ValueType::i32:
        return json_number<int32_t>();
      case ValueType::f32:
        return json_number<float>();
      case ValueType::u64:
        return json_number<uint64_t>();
      case ValueType::i64:
        return json_number<int64_t>();
      case ValueType::f64:
        return json_number<double>();
      case ValueType::boolean: {
        uint8_t value = 0;
        HEXLM_TRY(number(value, "metadata value"));
        return Json(value != 0);
      }
      case ValueType::string: {
        std::string value;
        HEXLM_TRY(string(value, longest_string, "metadata string"));
        return Json(std::move(value));
      }
      case ValueType::array:
        break;
    }
    return bad(fmt::format("metadata '{}' has the type {}, expected a scalar's", key, type));
  }

  Result<Json> array(const std::string& key) {
    uint32_t type = 0;
    uint64_t count = 0;
    HEXLM_TRY(number(type, "metadata array type"));
    HEXLM_TRY(number(count, "metadata array length"));
    HEXLM_TRY(check_count(count, type == static_cast<uint32_t>(ValueType::string) ? 8 : 1, "array elements"));
    if (count > longest_array) {
      return bad(
          fmt::format("metadata '{}' has {} elements, at most {} are read", key, count, longest_array));
    }
    Json values = Json::array();
    for (uint64_t i = 0; i < count; ++i) {
      HEXLM_ASSIGN(Json value, scalar(type, key));
      values.push_back(std::move(value));
    }
    return values;
  }

  Status pair() {
    std::string key;
    HEXLM_TRY(string(key, longest_name, "metadata key"));
    uint32_t type = 0;
    HEXLM_TRY(number(type, "metadata type"));
    const bool is_array = type == static_cast<uint32_t>(ValueType::array);
    HEXLM_ASSIGN(Json value, is_array ? array(key) : scalar(type, key));
    if (!content_.metadata.emplace(key, std::move(value)).second) {
      return bad(fmt::format("metadata '{}' is there twice", key));
    }
    return {};
  }

  Status tensor() {
    GgufTensor tensor;
    HEXLM_TRY(string(tensor.name, longest_name, "tensor name"));
    uint32_t dimensions = 0;
    HEXLM_TRY(number(dimensions, "dimension count"));
    if (dimensions > most_dimensions) {
      return bad(fmt::format("tensor '{}' has {} dimensions, at most {} are possible", tensor.name,
                             dimensions, most_dimensions));
    }
    tensor.shape.resize(dimensions);
    for (uint32_t i = 0; i < dimensions; ++i) {
      uint64_t size = 0;
      HEXLM_TRY(number(size, "dimension"));
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return bad(fmt::format("tensor '{}' has a dimension of {}", tensor.name, size));
      }
      tensor.shape[dimensions - 1 - i] = static_cast<int64_t>(size);
    }
    uint32_t type = 0;
    uint64_t offset = 0;
    HEXLM_TRY(number(type, "tensor type"));
    HEXLM_TRY(number(offset, "tensor offset"));
    const TypeFacts* facts = facts_of(type);
    if (facts == nullptr) {
      return fail(
          ErrorCode::unsupported,
          fmt::format("{}: tensor '{}' has the GGUF type {}, expected F32, F16, BF16, Q4_0, Q4_1, Q8_0, "
                      "Q4_K, Q5_K or Q6_K",
                      origin_, tensor.name, type),
          "use a file of one of these types");
    }
    tensor.type = facts->type;
    content_.tensors.push_back(std::move(tensor));
    offsets_.push_back(offset);
    return {};
  }

  /// The data section begins at the next multiple of the alignment; every offset counts from there.
  Status place_tensors() {
    uint64_t alignment = default_alignment;
    const auto found = content_.metadata.find("general.alignment");
    if (found != content_.metadata.end()) {
      const Json& value = found->second;
      if (!value.is_number_unsigned() || value < 1 || value > 1U << 20) {
        return bad(fmt::format("general.alignment is {}, expected 1 to 1048576", value.dump().substr(0, 40)));
      }
      alignment = value.get<uint64_t>();
    }
    const uint64_t begin = (position_ + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < content_.tensors.size(); ++i) {
      HEXLM_TRY(place(content_.tensors[i], begin, offsets_[i]));
    }
    return {};
  }

  Status place(GgufTensor& tensor, uint64_t begin, uint64_t offset) const {
    const GgufBlock block = block_of(tensor.type);
    const std::optional<int64_t> elements = element_count(tensor.shape);
    if (!elements || tensor.columns() % block.elements != 0) {
      return bad(fmt::format("tensor '{}' of shape {} does not consist of blocks of {}", tensor.name,
                             format_shape(tensor.shape), block.elements));
    }
    int64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(*elements / block.elements, block.bytes, &bytes);
    const uint64_t room = begin <= file_.size() ? file_.size() - begin : 0;
    if (!fits || offset > room || static_cast<uint64_t>(bytes) > room - offset) {
      return bad(
          fmt::format("tensor '{}' of shape {} at offset {} takes {} bytes, the file has {} for tensors",
                      tensor.name, format_shape(tensor.shape), offset, bytes, room));
    }
    tensor.bytes = file_.subspan(static_cast<size_t>(begin + offset), static_cast<size_t>(bytes));
    return {};
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  size_t position_ = 0;
  GgufContent content_;
  std::vector<uint64_t> offsets_;
};

}  // namespace

std::string_view to_string(GgufType type) {
  const TypeFacts* facts = facts_of(static_cast<uint32_t>(type));
  return facts != nullptr ? facts->name : "?";
}

GgufBlock block_of(GgufType type) {
  const TypeFacts* facts = facts_of(static_cast<uint32_t>(type));
  return facts != nullptr ? facts->block : GgufBlock{};
}

int64_t GgufTensor::rows() const {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
  return product;
}

Result<GgufContent> parse_gguf(std::span<const std::byte> file, const std::string& origin) {
  return GgufReader(file, origin).read();
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::string& path) {
  HEXLM_ASSIGN(MappedFile mapped, MappedFile::open(path));
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->file_ = std::make_shared<MappedFile>(std::move(mapped));
  HEXLM_ASSIGN(file->content_, parse_gguf(file->file_->bytes(), path));
  for (size_t i = 0; i < file->content_.tensors.size(); ++i) {
    const std::string& name = file->content_.tensors[i].name;
    if (!file->index_.emplace(name, i).second) {
      return fail(ErrorCode::bad_input, fmt::format("{}: tensor '{}' is there twice", path, name));
    }
  }
  return std::shared_ptr<const GgufFile>(std::move(file));
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

const Json* GgufFile::metadata(std::string_view key) const {
  const auto found = content_.metadata.find(key);
  return found == content_.metadata.end() ? nullptr : &found->second;
}

bool is_gguf_path(const std::string& path) { return path.ends_with(".gguf"); }

}  // namespace hexlm
