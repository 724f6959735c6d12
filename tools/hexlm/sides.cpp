#include "hexlm/sides.hpp"

#include <fmt/format.h>

#include "hexlm/common.hpp"

namespace hexlm::tool {
namespace {

Result<std::shared_ptr<const Model>> open_folder(const Arguments& arguments, const std::string& folder) {
  return Model::open(folder, {arguments.threads(), !arguments.toggle("no-verify"), {}});
}

std::string describe_side(const Session& session, const std::vector<AdapterChoice>& adapters) {
  const SessionOptions& options = session.options();
  std::string text = fmt::format("{}, {}, precision {}, kv cache {}, {} thread{}", session.model().folder(),
                                 options.backend, to_string(options.precision), to_string(session.cache()),
                                 options.threads, options.threads == 1 ? "" : "s");
  for (const AdapterChoice& adapter : adapters)
    text += fmt::format(", adapter {} × {}", adapter.folder, adapter.weight);
  return text;
}

Result<std::unique_ptr<Session>> open_side(Arguments arguments, const std::shared_ptr<const Model>& model,
                                           const std::string& side, std::string& description) {
  HEXLM_TRY(
      arguments.add_settings(model->settings(), model->folder() + "/config.json", ErrorCode::bad_input));
  const auto flag = [&](const std::string& name) {
    const std::string own = fmt::format("{}-{}", name, side);
    return arguments.has(own) ? own : name;
  };
  SessionOptions options = session_options(arguments);
  options.backend = arguments.text(flag("backend"));
  options.precision = precision_of(arguments, flag("precision"));
  options.cache = parse_cache_type(arguments.text(flag("kv-cache")));
  options.chunk = arguments.integer(flag("chunk"));
  const int64_t threads = arguments.integer(flag("threads"));
  if (threads > 0) {
    options.threads = static_cast<int>(threads);
    options.processors.clear();
  }
  HEXLM_ASSIGN(auto session, Session::create(model, options));
  FlagValues own;
  for (const std::string name : {"adapter", "adapter-scale"}) {
    if (arguments.has(flag(name))) own[name] = arguments.texts(flag(name));
  }
  // A side's own adapters have their own scales, or 1: not the one of adapters that it does not have.
  if (flag("adapter") != "adapter" && flag("adapter-scale") == "adapter-scale") own["adapter-scale"] = {};
  arguments = arguments.with(own);
  HEXLM_TRY(set_adapters(arguments, *session));
  HEXLM_ASSIGN(const std::vector<AdapterChoice> adapters, read_adapters(arguments));
  description = describe_side(*session, adapters);
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
  HEXLM_ASSIGN(sides.a, open_side(arguments, reference, "a", sides.description_a));
  HEXLM_ASSIGN(sides.b, open_side(arguments, other, "b", sides.description_b));
  return sides;
}

}  // namespace hexlm::tool
