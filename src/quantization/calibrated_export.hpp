#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "formats/json.hpp"
#include "quantization/export.hpp"
#include "quantization/work_folder.hpp"

namespace hexlm {

/// True when one of the methods looks at activations.
bool is_calibrated(const ExportOptions& options);

/// Makes the tensors of calibrated methods, in the work folder; reads or writes statistics where the options
/// say so. Errors: usage without calibration, limit for memory, those of quantize_layers, WorkFolder and the
/// statistics' file.
Result<WorkFolder> calibrate_export(const ExportOptions& options, const ExportPlan& plan,
                                    const std::shared_ptr<const WeightSource>& weights,
                                    const ProgressCallback& progress);

/// What the manifest says about a calibration set: counts, hash, shares and warnings.
Json to_record(const CalibrationSet& set);
/// The set that saved statistics were taken from, without its sequences. Errors: those of
/// StatisticsReader::open; bad_input for an incomplete record.
Result<CalibrationSet> read_saved_set(const std::string& statistics);

}  // namespace hexlm
