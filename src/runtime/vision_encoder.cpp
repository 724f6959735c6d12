#include "runtime/vision_encoder.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "base/hash.hpp"
#include "base/mapped_file.hpp"
#include "base/progress.hpp"
#include "runtime/session.hpp"
#include "vision/tower_feed.hpp"

namespace hexlm {
namespace {

/// Plans are compiled for at least this many merged cells (512 x 512 pixels at 32 a side), then for powers of
/// two, so that a few images of growing size don't each prepare the weights again.
constexpr int64_t least_plan_cells = 256;

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_;
};

Status check_preprocessor(const PreprocessorConfig& preprocessor, const VisionConfig& vision,
                          const std::string& path) {
  const auto same = [&](const char* key, int64_t got, int64_t expected) -> Status {
    if (got == expected) return {};
    return fail(ErrorCode::bad_input,
                fmt::format("{}: '{}' is {}, config.json says {}", path, key, got, expected),
                "take the preprocessor_config.json of this checkpoint");
  };
  HEXLM_TRY(same("patch_size", preprocessor.patch_size, vision.patch_size));
  HEXLM_TRY(same("temporal_patch_size", preprocessor.temporal_patch_size, vision.temporal_patch_size));
  return same("merge_size", preprocessor.merge_size, vision.merge_size);
}

Result<PreprocessorConfig> find_preprocessor(const std::string& folder) {
  std::error_code error;
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (std::filesystem::exists(path, error)) return load_preprocessor_config(path);
  }
  return fail(ErrorCode::bad_input,
              fmt::format("{} has no preprocessor_config.json, which says how to prepare images", folder),
              "take it from the checkpoint");
}

TowerShape shape_of(const VisionConfig& config) {
  return {static_cast<int>(config.merge_size), static_cast<int>(config.head_dim()), config.rope_theta,
          static_cast<int>(config.position_side), static_cast<int>(config.window_cells)};
}

uint64_t bytes_of(const ImageFeatures& image) {
  return image.features.size() * (1 + image.deepstack.size()) * sizeof(float);
}

}  // namespace

VisionEncoder::VisionEncoder(std::shared_ptr<const Model> model, const VisionOptions& options)
    : model_(std::move(model)), options_(options) {}

VisionEncoder::~VisionEncoder() = default;

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::create(std::shared_ptr<const Model> model,
                                                             const VisionOptions& options) {
  if (model->vision_graph() == nullptr) return tl::unexpected<Error>(no_vision(*model));
  std::unique_ptr<VisionEncoder> encoder(new VisionEncoder(std::move(model), options));
  HEXLM_ASSIGN(encoder->preprocessor_, find_preprocessor(encoder->model_->folder()));
  PreprocessorConfig& preprocessor = encoder->preprocessor_;
  HEXLM_TRY(check_preprocessor(preprocessor, *encoder->model_->config().vision, encoder->model_->folder()));
  if (options.max_pixels != 0) {
    const int64_t least = int64_t{preprocessor.factor()} * preprocessor.factor();
    if (options.max_pixels < least) {
      return fail(ErrorCode::usage,
                  fmt::format("images of {} pixels at most: one token takes {}", options.max_pixels, least));
    }
    limit_pixels(preprocessor, options.max_pixels);
  }
  return encoder;
}

Result<std::shared_ptr<const ImageFeatures>> VisionEncoder::encode_file(const std::string& path) {
  HEXLM_ASSIGN(const MappedFile file, MappedFile::open(path));
  return encode_bytes(file.bytes(), path);
}

Result<std::shared_ptr<const ImageFeatures>> VisionEncoder::encode_bytes(std::span<const std::byte> file,
                                                                         const std::string& origin) {
  ++timings_.images;
  const uint64_t key = hash64(file);
  if (auto found = find_cached(key)) return found;
  PreparedImage prepared;
  {
    Image image;
    {
      const Stopwatch watch(timings_.decode_s);
      HEXLM_ASSIGN(image, decode_image(file, origin, options_.decode));
    }
    const Stopwatch watch(timings_.preprocess_s);
    HEXLM_ASSIGN(prepared, preprocess_image(image, preprocessor_));
  }
  HEXLM_ASSIGN(auto features, encode_prepared(prepared));
  keep(key, features);
  return features;
}

Result<std::shared_ptr<const ImageFeatures>> VisionEncoder::encode_image(const Image& image) {
  ++timings_.images;
  Hasher hasher;
  const std::array<int, 2> size = {image.width, image.height};
  hasher.update(std::as_bytes(std::span(size)));
  hasher.update(std::as_bytes(std::span(image.rgb)));
  const uint64_t key = hasher.digest();
  if (auto found = find_cached(key)) return found;
  PreparedImage prepared;
  {
    const Stopwatch watch(timings_.preprocess_s);
    HEXLM_ASSIGN(prepared, preprocess_image(image, preprocessor_));
  }
  HEXLM_ASSIGN(auto features, encode_prepared(prepared));
  keep(key, features);
  return features;
}

Status VisionEncoder::check_weights() {
  if (checked_ || !options_.verify) return {};
  HEXLM_TRY(model_->verify_vision(options_.threads));
  checked_ = true;
  return {};
}

Status VisionEncoder::prepare_plan(int64_t cells) {
  if (plan_ != nullptr && cells <= plan_cells_) return {};
  const Stopwatch watch(timings_.load_s);
  HEXLM_TRY(check_weights());
  HEXLM_ASSIGN(const auto backend, make_backend(options_.backend));
  PlanOptions plan;
  plan.threads = options_.threads;
  plan.processors = options_.processors;
  plan.precision = options_.precision;
  plan.max_tokens = 1;
  plan.max_rows = 1;
  plan.context = 1;
  plan.max_patches =
      std::max(least_plan_cells, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(cells))));
  // Freed before its successor is made: two of them would hold the weights twice.
  state_.reset();
  plan_.reset();
  HEXLM_ASSIGN(plan_, backend->compile(model_->vision_graph(), model_->weights(), plan));
  HEXLM_ASSIGN(state_, plan_->create_state());
  plan_cells_ = plan.max_patches;
  return {};
}

Result<std::shared_ptr<const ImageFeatures>> VisionEncoder::encode_prepared(const PreparedImage& image) {
  const VisionConfig& config = *model_->config().vision;
  const ImageGrid& grid = image.grid;
  const int64_t merge = config.merge_size;
  const bool whole = grid.t > 0 && grid.h > 0 && grid.w > 0 && grid.h % merge == 0 && grid.w % merge == 0;
  if (!whole || std::cmp_not_equal(image.pixel_values.size(), grid.patches() * config.patch_elements())) {
    return fail(
        ErrorCode::usage,
        fmt::format("{} pixel values for a grid of {} x {} x {} patches, expected {} a patch and sides that "
                    "are multiples of {}",
                    image.pixel_values.size(), grid.t, grid.h, grid.w, config.patch_elements(), merge));
  }
  if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
  auto features = std::make_shared<ImageFeatures>();
  features->grid = grid;
  features->tokens = grid.tokens(static_cast<int>(merge));
  features->width = config.output_size;
  HEXLM_TRY(prepare_plan(features->tokens));

  const Stopwatch watch(timings_.tower_s);
  const TowerFeed given(shape_of(config), grid);
  const Graph& graph = *model_->vision_graph();
  std::vector<const void*> inputs;
  for (const ValueId id : graph.inputs()) inputs.push_back(given.find(graph.value(id).name, image));
  const auto elements = static_cast<size_t>(features->tokens * features->width);
  features->features.resize(elements);
  features->deepstack.assign(config.deepstack_blocks.size(), std::vector<float>(elements));
  std::vector<float*> outputs = {features->features.data()};
  for (std::vector<float>& level : features->deepstack) outputs.push_back(level.data());
  SymbolValues symbols;
  symbols.patches = features->tokens;
  HEXLM_TRY(plan_->run({symbols, inputs, outputs, nullptr}, *state_));
  return features;
}

std::shared_ptr<const ImageFeatures> VisionEncoder::find_cached(uint64_t key) {
  const auto found =
      std::find_if(cache_.begin(), cache_.end(), [&](const auto& entry) { return entry.first == key; });
  if (found == cache_.end()) return nullptr;
  ++timings_.cache_hits;
  cache_.splice(cache_.begin(), cache_, found);
  return found->second;
}

void VisionEncoder::keep(uint64_t key, const std::shared_ptr<const ImageFeatures>& features) {
  cache_.emplace_front(key, features);
  cached_bytes_ += bytes_of(*features);
  while (cached_bytes_ > options_.cache_bytes && !cache_.empty()) {
    cached_bytes_ -= bytes_of(*cache_.back().second);
    cache_.pop_back();
  }
}

std::string VisionEncoder::placement() const {
  return plan_ == nullptr ? std::string() : describe_placement(plan_->placement(), *model_->vision_graph());
}

uint64_t VisionEncoder::weight_bytes() const { return plan_ == nullptr ? 0 : plan_->weight_bytes(); }
uint64_t VisionEncoder::arena_bytes() const { return plan_ == nullptr ? 0 : plan_->arena_bytes(); }

}  // namespace hexlm
