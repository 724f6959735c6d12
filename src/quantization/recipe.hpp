#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// One rule of mixed precision. `selector` is a parameter's whole name, in which `*` stands for any
/// characters.
struct RecipeRule {
  std::string selector;
  Codec codec;
};

/// Codecs by name; of several rules that match a weight the last one counts.
struct Recipe {
  std::vector<RecipeRule> rules;
};

/// True when the whole of `name` is what `selector` describes.
bool matches(std::string_view selector, std::string_view name);

/// Reads {"rules": [{"tensors": "layers.*.mlp.down_proj.weight", "codec": "w8g64"}, …]}; "tensors" may be a
/// list. Errors: bad_input naming file, rule and key.
Result<Recipe> read_recipe(const std::string& path);

}  // namespace hexlm
