#pragma once

#include <string>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "formats/codec.hpp"
#include "graph/graph.hpp"
#include "quantization/export.hpp"

namespace hexlm {

/// The codecs of the four kinds of matrices that the user chooses. docs/quantization.md gives the reasons
/// for the defaults.
struct CodecChoice {
  Codec linear{Codec::Kind::integer, 4, 64, true};
  Codec lm_head{Codec::Kind::integer, 8, 128, true};
  Codec embedding{Codec::Kind::integer, 8, 128, true};
  Codec vision{Codec::Kind::integer, 8, 128, true};
};

/// Fills in the defaults. With tied embeddings one tensor serves as both, so both get the codec given for
/// either. Errors: usage, naming both, when the two are given and differ.
Result<CodecChoice> choose_codecs(const ExportOptions& options, bool tied);

/// How a parameter is stored: the user's choice for the big matrices, lossless for everything else (f32 for
/// vectors; sensitive matrices keep the type they have in the checkpoint).
Codec codec_for(ParameterRole role, DType source, const CodecChoice& choice);

/// What a reader of the plan should know about a tensor: a group that does not fit its columns, or a codec
/// that was not the one asked for. Empty when there is nothing to say.
std::string describe_fit(const Codec& codec, int64_t columns);

}  // namespace hexlm
