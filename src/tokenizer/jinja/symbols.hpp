#pragma once

#include "tokenizer/jinja/ast.hpp"

namespace hexlm::jinja {

/// Jinja decides when it compiles a template which variables a block defines. A name that a block assigns
/// before it reads it is undefined in the blocks within until then, even if the context has a variable of
/// that name:
///
///     {% for i in [1] %}{{ x }}{% endfor %}{% set x = 2 %}    prints nothing for the context {x: 1}
///
/// Fills the `hidden` names of every block in `body` and returns those of `body` itself, the whole template.
HiddenNames find_hidden_names(Body& body);

}  // namespace hexlm::jinja
