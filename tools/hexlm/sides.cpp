#include "hexlm/sides.hpp"

#include <fmt/format.h>

#include "hexlm/common.hpp"

namespace hexlm::tool {
namespace {

Result<std::shared_ptr<const Model>> open_folder(const Arguments& arguments, const std::string& folder) {
  return Model::open(folder, {arguments.threads(), !arguments.toggle("no-verify"), {}});
}

Result<std::unique_ptr<Session>> open_side(Arguments arguments, const std::shared_ptr<const Model>& model,
                                           const std::string& side) {
  HEXLM_TRY(
      arguments.add_settings(model->settings(), model->folder() + "/config.json", ErrorCode::bad_input));
  const auto flag = [&](const std::string& name) {
    const std::string own = fmt::format("{}-{}", name, side);
    return arguments.has(own) ? own : name;
  };
  SessionOptions options = session_options(arguments);
  options.backend = arguments.text(flag("backend"));
  options.precision = precision_of(arguments, flag("precision"));
  options.chunk = arguments.integer(flag("chunk"));
  const int64_t threads = arguments.integer(flag("threads"));
  if (threads > 0) options.threads = static_cast<int>(threads);
  HEXLM_ASSIGN(auto session, Session::create(model, options));
  HEXLM_TRY(set_adapters(arguments, *session));
  return session;
}

}  // namespace

Result<Sides> open_sides(const Arguments& arguments) {
  HEXLM_ASSIGN(const auto reference, open_folder(arguments, arguments.positional(0)));
  std::shared_ptr<const Model> other = reference;
  if (arguments.positional(1) != arguments.positional(0)) {
    HEXLM_ASSIGN(other, open_folder(arguments, arguments.positional(1)));
  }
  Sides sides;
  HEXLM_ASSIGN(sides.a, open_side(arguments, reference, "a"));
  HEXLM_ASSIGN(sides.b, open_side(arguments, other, "b"));
  return sides;
}

std::string describe_side(const Session& session) {
  const SessionOptions& options = session.options();
  return fmt::format("{}, {}, precision {}, {} thread{}", session.model().folder(), options.backend,
                     to_string(options.precision), options.threads, options.threads == 1 ? "" : "s");
}

}  // namespace hexlm::tool
