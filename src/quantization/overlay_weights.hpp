#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/codec.hpp"

namespace hexlm {

/// The weights of another source, some of them replaced by floats of the same shape. Not thread-safe while
/// `replace` or `clear` runs.
class OverlayWeights : public WeightSource {
 public:
  explicit OverlayWeights(std::shared_ptr<const WeightSource> base) : base_(std::move(base)) {}

  void replace(const std::string& name, std::vector<float> values) {
    replaced_[name] = std::make_shared<const std::vector<float>>(std::move(values));
  }
  void clear() { replaced_.clear(); }

  Result<WeightView> find(std::string_view name) const override {
    const auto found = replaced_.find(name);
    if (found == replaced_.end()) return base_->find(name);
    HEXLM_ASSIGN(WeightView view, base_->describe(name));
    view.codec = Codec{};
    view.data.dtype = DType::f32;
    view.data.bytes = std::as_bytes(std::span(*found->second));
    view.scales = {};
    view.offsets = {};
    view.storage = found->second;
    return view;
  }
  bool contains(std::string_view name) const override { return base_->contains(name); }
  void release(const WeightView& weight) const override {
    if (replaced_.find(weight.name) == replaced_.end()) base_->release(weight);
  }
  std::string origin() const override { return base_->origin(); }

 private:
  std::shared_ptr<const WeightSource> base_;
  std::map<std::string, std::shared_ptr<const std::vector<float>>, std::less<>> replaced_;
};

}  // namespace hexlm
