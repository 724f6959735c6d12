#include "graph/graph.hpp"

namespace hexlm {

std::string_view to_string(ParameterRole role) {
  switch (role) {
    case ParameterRole::linear:
      return "linear";
    case ParameterRole::embedding:
      return "embedding";
    case ParameterRole::lm_head:
      return "lm_head";
    case ParameterRole::sensitive:
      return "sensitive";
    case ParameterRole::vector:
      return "vector";
    case ParameterRole::vision:
      return "vision";
  }
  return "";
}

ParameterId Graph::find_parameter(std::string_view name) const {
  const auto found = parameter_index_.find(name);
  return found == parameter_index_.end() ? ParameterId{} : ParameterId{found->second};
}

}  // namespace hexlm
