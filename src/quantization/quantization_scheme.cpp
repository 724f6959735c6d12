#include "quantization/quantization_scheme.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace hexlm {
namespace {

constexpr const char* float_hint = "export from the float checkpoint that it was made from";

class SchemeReader {
 public:
  SchemeReader(const Json& json, const std::string& origin)
      : json_(json), origin_(origin + ": quantization_config") {}

  Result<QuantizationScheme> read() {
    if (!json_.is_object()) return bad(fmt::format("expected an object, got {}", json_.type_name()));
    const std::string method = text(json_, "quant_method");
    if (method == "gptq") return gptq();
    if (method == "awq") return awq();
    if (method == "compressed-tensors") return compressed_tensors();
    if (method == "fp8") return fp8();
    if (method == "auto-round" || method == "intel/auto-round") return auto_round();
    return unsupported(
        fmt::format("quant_method '{}', expected gptq, awq, compressed-tensors, fp8 or "
                    "auto-round",
                    method.substr(0, 60)));
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin_, what));
  }
  tl::unexpected<Error> unsupported(const std::string& what) const {
    return fail(ErrorCode::unsupported, fmt::format("{}: {}", origin_, what), float_hint);
  }

  static std::string text(const Json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return {};
    std::string value = found->get<std::string>();
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value;
  }

  Result<int64_t> integer(const Json& json, const char* key, int64_t least, int64_t most) const {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer() || *found < least || *found > most) {
      return bad(fmt::format("{}: expected {} to {}, got {}", key, least, most,
                             found == json.end() ? "nothing" : found->dump().substr(0, 40)));
    }
    return found->get<int64_t>();
  }

  Status read_bits_and_group(const char* group_key = "group_size") {
    HEXLM_ASSIGN(const int64_t bits, integer(json_, "bits", 2, 8));
    HEXLM_ASSIGN(const int64_t group, integer(json_, group_key, -1, 1 << 20));
    if (group == 0) return bad(fmt::format("{}: expected -1 or more than 0, got 0", group_key));
    scheme_.bits = static_cast<int>(bits);
    scheme_.group = group < 0 ? 0 : group;
    return {};
  }

  Result<QuantizationScheme> gptq() {
    HEXLM_TRY(read_bits_and_group());
    if (scheme_.bits != 2 && scheme_.bits != 3 && scheme_.bits != 4 && scheme_.bits != 8) {
      return unsupported(fmt::format("{} bits, expected 2, 3, 4 or 8", scheme_.bits));
    }
    const std::string format = text(json_, "checkpoint_format");
    if (format == "gptq_v2") {
      scheme_.format = QuantizationScheme::Format::gptq_v2;
    } else if (format.empty() || format == "gptq") {
      scheme_.format = QuantizationScheme::Format::gptq_v1;
    } else {
      return unsupported(
          fmt::format("checkpoint_format '{}', expected gptq or gptq_v2", format.substr(0, 60)));
    }
    return std::move(scheme_);
  }

  Result<QuantizationScheme> awq() {
    HEXLM_TRY(read_bits_and_group());
    if (scheme_.bits != 4) return unsupported(fmt::format("awq with {} bits, expected 4", scheme_.bits));
    const std::string version = text(json_, "version");
    if (!version.empty() && version != "gemm") {
      return unsupported(fmt::format("awq version '{}', expected gemm", version.substr(0, 60)));
    }
    scheme_.format = QuantizationScheme::Format::awq_gemm;
    return std::move(scheme_);
  }

  Result<QuantizationScheme> auto_round() {
    const std::string packing = text(json_, "packing_format");
    if (packing == "auto_round:auto_gptq") return gptq();
    if (packing == "auto_round:auto_awq") return awq();
    return unsupported(fmt::format(
        "packing_format '{}', expected auto_round:auto_gptq or auto_round:auto_awq", packing.substr(0, 60)));
  }

  Result<QuantizationScheme> fp8() {
    scheme_.format = QuantizationScheme::Format::fp8_block;
    scheme_.bits = 8;
    const std::string format = text(json_, "fmt");
    if (!format.empty() && format != "e4m3") {
      return unsupported(fmt::format("fp8 format '{}', expected e4m3", format.substr(0, 60)));
    }
    const auto block = json_.find("weight_block_size");
    if (block == json_.end() || block->is_null()) return std::move(scheme_);
    const auto is_size = [](const Json& value) {
      return value.is_number_integer() && value >= 1 && value <= 65536;
    };
    if (!block->is_array() || block->size() != 2 || !is_size((*block)[0]) || !is_size((*block)[1])) {
      return bad("weight_block_size: expected two sizes");
    }
    scheme_.block_rows = (*block)[0].get<int64_t>();
    scheme_.block_columns = (*block)[1].get<int64_t>();
    return std::move(scheme_);
  }

  Result<QuantizationScheme> compressed_tensors() {
    const std::string format = text(json_, "format");
    if (format != "pack-quantized") {
      return unsupported(
          fmt::format("compressed-tensors format '{}', expected pack-quantized", format.substr(0, 60)));
    }
    scheme_.format = QuantizationScheme::Format::pack_quantized;
    const auto groups = json_.find("config_groups");
    if (groups == json_.end() || !groups->is_object() || groups->empty()) {
      return bad("config_groups: expected an object of groups");
    }
    for (const auto& [name, group] : groups->items()) HEXLM_TRY(read_config_group(name, group));
    return std::move(scheme_);
  }

  Status read_config_group(const std::string& name, const Json& group) {
    const auto weights = group.is_object() ? group.find("weights") : group.end();
    if (!group.is_object() || weights == group.end() || !weights->is_object()) {
      return bad(fmt::format("config_groups.{}: expected an object with weights", name));
    }
    HEXLM_ASSIGN(const int64_t bits, integer(*weights, "num_bits", 2, 8));
    const std::string type = text(*weights, "type");
    if (!type.empty() && type != "int") {
      return unsupported(fmt::format("config_groups.{}: type '{}', expected int", name, type.substr(0, 60)));
    }
    scheme_.bits = static_cast<int>(bits);
    const auto targets = group.find("targets");
    if (targets == group.end() || !targets->is_array()) return {};
    for (const Json& target : *targets) {
      if (!target.is_string()) return bad(fmt::format("config_groups.{}: targets: expected names", name));
      HEXLM_TRY(add_target(target.get<std::string>(), static_cast<int>(bits)));
    }
    return {};
  }

  /// A class name means every module of that class; the quantized ones are all linears.
  Status add_target(const std::string& target, int bits) {
    std::string expression = ".*";
    if (target.starts_with("re:")) {
      expression = target.substr(3);
    } else if (target != "Linear") {
      expression = "(?:.*\\.)?\\Q" + target + "\\E$";
    }
    HEXLM_ASSIGN(NamePattern pattern, NamePattern::beginning(expression, origin_));
    const auto entry = std::pair(std::move(pattern), bits);
    // Single names go before the class.
    scheme_.bits_of.insert(target == "Linear" ? scheme_.bits_of.end() : scheme_.bits_of.begin(), entry);
    return {};
  }

  const Json& json_;
  std::string origin_;
  QuantizationScheme scheme_;
};

}  // namespace

std::string_view to_string(QuantizationScheme::Format format) {
  switch (format) {
    case QuantizationScheme::Format::gptq_v1:
    case QuantizationScheme::Format::gptq_v2:
      return "gptq";
    case QuantizationScheme::Format::awq_gemm:
      return "awq";
    case QuantizationScheme::Format::pack_quantized:
      return "compressed-tensors";
    case QuantizationScheme::Format::fp8_block:
      return "fp8";
  }
  return "?";
}

Result<int> QuantizationScheme::bits_for(std::string_view module) const {
  for (const auto& [pattern, width] : bits_of) {
    HEXLM_ASSIGN(const bool matches, pattern.matches(module));
    if (matches) return width;
  }
  return bits;
}

Result<QuantizationScheme> parse_quantization_scheme(const Json& json, const std::string& origin) {
  return SchemeReader(json, origin).read();
}

}  // namespace hexlm
