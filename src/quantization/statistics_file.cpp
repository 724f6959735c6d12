#include "quantization/statistics_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/package.hpp"

namespace hexlm {
namespace {

constexpr const char* statistics_format = "hexlm-statistics-1";
constexpr const char* checksums_name = "checksums";

constexpr std::array identity_parts = {std::pair("model", &StatisticsIdentity::model),
                                       std::pair("calibration", &StatisticsIdentity::calibration),
                                       std::pair("method", &StatisticsIdentity::method),
                                       std::pair("codecs", &StatisticsIdentity::codecs)};

/// Tokens and the two halves' ranges.
constexpr int64_t fact_count = 3;

std::vector<TensorPlan> plan_of(const StageStatistics& stage) {
  const int64_t n = stage.columns;
  std::vector<TensorPlan> plans = {{stage.name + ".facts", DType::f64, {fact_count}},
                                   {stage.name + ".mean_abs", DType::f32, {n}},
                                   {stage.name + ".gram", DType::f32, {n * (n + 1) / 2}}};
  if (stage.with_cross) plans.push_back({stage.name + ".cross", DType::f32, {n, n}});
  if (stage.outputs > 0) plans.push_back({stage.name + ".residual", DType::f32, {stage.outputs, n}});
  return plans;
}

std::vector<float> narrow(const std::vector<double>& values) { return {values.begin(), values.end()}; }

std::vector<float> upper_triangle(const std::vector<double>& square, int64_t n) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(n * (n + 1) / 2));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j)
      values.push_back(static_cast<float>(square[static_cast<size_t>(i * n + j)]));
  }
  return values;
}

/// Mapped bytes have no alignment.
template <class T>
std::vector<T> copy_values(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::vector<double> widen(std::span<const std::byte> bytes) {
  const std::vector<float> values = copy_values<float>(bytes);
  return {values.begin(), values.end()};
}

std::vector<double> square_of(std::span<const std::byte> bytes, int64_t n) {
  const std::vector<float> upper = copy_values<float>(bytes);
  std::vector<double> square(static_cast<size_t>(n * n));
  size_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j, ++at) {
      square[static_cast<size_t>(i * n + j)] = upper[at];
      square[static_cast<size_t>(j * n + i)] = upper[at];
    }
  }
  return square;
}

}  // namespace

Result<StatisticsWriter> StatisticsWriter::create(const std::string& path, const StatisticsIdentity& identity,
                                                  const Json& record, std::vector<StageStatistics> stages) {
  std::map<std::string, std::string> metadata = {{"format", statistics_format}, {"record", record.dump()}};
  for (const auto& [name, part] : identity_parts) metadata[name] = identity.*part;
  std::vector<TensorPlan> plans;
  for (const StageStatistics& stage : stages) {
    for (TensorPlan& plan : plan_of(stage)) plans.push_back(std::move(plan));
  }
  plans.push_back({checksums_name, DType::u8, {static_cast<int64_t>(stages.size() * sizeof(uint64_t))}});
  HEXLM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, plans, metadata, package_alignment));
  return StatisticsWriter(std::move(writer), std::move(stages));
}

Status StatisticsWriter::add(std::string_view stage, const InputMoments& moments) {
  const size_t turn = checksums_.size();
  if (turn >= stages_.size() || stages_[turn].name != stage) {
    return fail(ErrorCode::runtime, fmt::format("statistics of '{}' come where '{}' is planned", stage,
                                                turn < stages_.size() ? stages_[turn].name : "nothing"));
  }
  const std::array<double, fact_count> facts = {static_cast<double>(moments.tokens), moments.half_max[0],
                                                moments.half_max[1]};
  Hasher hasher;
  const auto write = [&](std::span<const std::byte> bytes) {
    hasher.update(bytes);
    return writer_.write(bytes);
  };
  HEXLM_TRY(write(std::as_bytes(std::span(facts))));
  HEXLM_TRY(write(std::as_bytes(std::span<const float>(narrow(moments.mean_abs)))));
  HEXLM_TRY(write(std::as_bytes(std::span<const float>(upper_triangle(moments.gram, moments.columns)))));
  for (const std::vector<double>* part : {&moments.cross, &moments.residual}) {
    if (!part->empty()) HEXLM_TRY(write(std::as_bytes(std::span<const float>(narrow(*part)))));
  }
  checksums_.push_back(hasher.digest());
  return {};
}

Status StatisticsWriter::commit() {
  HEXLM_TRY(writer_.write(std::as_bytes(std::span(checksums_))));
  return writer_.commit();
}

Result<StatisticsReader> StatisticsReader::open(const std::string& path) {
  HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  StatisticsReader reader(std::move(file));
  const auto& metadata = reader.file_.metadata();
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (text("format") != statistics_format) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: holds no calibration statistics: its format is '{}', expected '{}'", path,
                            text("format"), statistics_format),
                "give a file that `export --save-statistics` wrote");
  }
  for (const auto& [name, part] : identity_parts) reader.identity_.*part = text(name);
  HEXLM_ASSIGN(reader.record_, parse_json(text("record"), path));
  if (!reader.record_.is_object())
    return fail(ErrorCode::bad_input, fmt::format("{}: its record is no object", path));
  return reader;
}

Status StatisticsReader::check(const StatisticsIdentity& wanted,
                               const std::vector<StageStatistics>& stages) const {
  const std::string& path = file_.file().path();
  for (const auto& [name, part] : identity_parts) {
    if (identity_.*part == wanted.*part) continue;
    return fail(ErrorCode::bad_input,
                fmt::format("{}: its statistics were taken with another {}: {}, here {}", path, name,
                            identity_.*part, wanted.*part),
                "calibrate again: --calibration FILE --save-statistics FILE");
  }
  const TensorView* checksums = file_.find(checksums_name);
  bool complete = checksums != nullptr && checksums->bytes.size() == stages.size() * sizeof(uint64_t);
  for (const StageStatistics& stage : stages) {
    for (const TensorPlan& plan : plan_of(stage)) {
      const TensorView* part = file_.find(plan.name);
      complete = complete && part != nullptr && part->dtype == plan.dtype && part->shape == plan.shape;
      if (complete) continue;
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: '{}' is not as this export needs it", path, plan.name),
                  "calibrate again: --calibration FILE --save-statistics FILE");
    }
  }
  const std::vector<uint64_t> sums = copy_values<uint64_t>(checksums->bytes);
  for (size_t i = 0; i < stages.size(); ++i) {
    Hasher hasher;
    for (const TensorPlan& plan : plan_of(stages[i])) hasher.update(file_.find(plan.name)->bytes);
    if (hasher.digest() == sums[i]) continue;
    return fail(ErrorCode::bad_input,
                fmt::format("{}: '{}' is damaged: checksum {}, expected {}", path, stages[i].name,
                            to_hex(hasher.digest()), to_hex(sums[i])),
                "calibrate again: --calibration FILE --save-statistics FILE");
  }
  return {};
}

InputMoments StatisticsReader::read(const StageStatistics& stage) const {
  const auto bytes = [&](const char* part) { return file_.find(stage.name + part)->bytes; };
  const std::vector<double> facts = copy_values<double>(bytes(".facts"));
  InputMoments moments;
  moments.columns = stage.columns;
  moments.tokens = static_cast<int64_t>(facts[0]);
  moments.half_max[0] = facts[1];
  moments.half_max[1] = facts[2];
  moments.mean_abs = widen(bytes(".mean_abs"));
  moments.gram = square_of(bytes(".gram"), stage.columns);
  if (stage.with_cross) moments.cross = widen(bytes(".cross"));
  if (stage.outputs > 0) moments.residual = widen(bytes(".residual"));
  return moments;
}

}  // namespace hexlm
