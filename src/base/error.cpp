#include "base/error.hpp"

namespace hexlm {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::runtime:
      return "runtime";
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::bad_input:
      return "bad_input";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::limit:
      return "limit";
    case ErrorCode::device:
      return "device";
    case ErrorCode::verification:
      return "verification";
    case ErrorCode::interrupted:
      return "interrupted";
  }
  return "runtime";
}

}  // namespace hexlm
