#include "tokenizer/jinja/registry.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.hpp"
#include "tokenizer/jinja/filters.hpp"

namespace hexlm::jinja {

Error unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  Error error{ErrorCode::unsupported, fmt::format("there is no {} '{}'", what, name), {}};
  const std::string candidate = nearest(name, known);
  if (!candidate.empty()) error.hint = fmt::format("did you mean '{}'?", candidate);
  return error;
}

namespace {

constexpr auto filter_groups = {text_filters, sequence_filters, selection_filters, number_filters};

}  // namespace

Result<const Filter*> find_filter(std::string_view name) {
  std::vector<std::string> known;
  for (const auto group : filter_groups) {
    for (const Filter& filter : group()) {
      if (filter.name == name) return &filter;
    }
  }
  for (const auto group : filter_groups) {
    for (const Filter& filter : group()) known.emplace_back(filter.name);
  }
  return tl::unexpected<Error>(unknown_name("filter", name, known));
}

Result<const Test*> find_test(std::string_view name) {
  for (const Test& test : all_tests()) {
    if (test.name == name) return &test;
  }
  std::vector<std::string> known;
  for (const Test& test : all_tests()) known.emplace_back(test.name);
  return tl::unexpected<Error>(unknown_name("test", name, known));
}

}  // namespace hexlm::jinja
