#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "quantization/moments.hpp"

namespace hexlm {

/// The moments of one stage as they lie in a file.
struct StageStatistics {
  std::string name;  ///< of the value that the stage's linears read
  int64_t columns = 0;
  int64_t outputs = 0;  ///< rows of InputMoments::residual
  bool with_cross = false;
};

/// What statistics were taken from. Saved ones serve only an export in which all of this is the same; the
/// parts have names so that a message can say which differs.
struct StatisticsIdentity {
  std::string model;        ///< hash of the checkpoint
  std::string calibration;  ///< hash of the samples
  std::string method;
  std::string codecs;  ///< hash of the codecs, for methods that look at the model quantized so far; else ""
};

/// Writes calibration moments: a safetensors file with the upper triangles of x xᵀ, f xᵀ, the means and
/// ranges of every stage in float32, and an XXH3-64 a stage in its last tensor. The file appears when it is
/// complete. Errors: those of SafetensorsWriter.
class StatisticsWriter {
 public:
  /// `record` is what the reader will want to know about the calibration set.
  static Result<StatisticsWriter> create(const std::string& path, const StatisticsIdentity& identity,
                                         const Json& record, std::vector<StageStatistics> stages);
  /// The next stage's. Errors: runtime when it is another stage's turn.
  Status add(std::string_view stage, const InputMoments& moments);
  Status commit();

 private:
  StatisticsWriter(SafetensorsWriter writer, std::vector<StageStatistics> stages)
      : writer_(std::move(writer)), stages_(std::move(stages)) {}
  SafetensorsWriter writer_;
  std::vector<StageStatistics> stages_;
  std::vector<uint64_t> checksums_;
};

class StatisticsReader {
 public:
  /// Errors: those of SafetensorsFile; bad_input for a file that holds no statistics.
  static Result<StatisticsReader> open(const std::string& path);
  const Json& record() const { return record_; }
  const StatisticsIdentity& identity() const { return identity_; }
  /// Reads everything once. Errors: bad_input, naming the part of the identity that differs, the tensor that
  /// is missing or the stage whose bytes are not those that were written.
  Status check(const StatisticsIdentity& wanted, const std::vector<StageStatistics>& stages) const;
  /// One of the stages that were checked.
  InputMoments read(const StageStatistics& stage) const;

 private:
  explicit StatisticsReader(SafetensorsFile file) : file_(std::move(file)) {}
  SafetensorsFile file_;
  Json record_;
  StatisticsIdentity identity_;
};

}  // namespace hexlm
