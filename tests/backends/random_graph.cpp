#include "random_graph.hpp"

namespace hexlm {

RandomGraph::RandomGraph(uint32_t seed)
    : engine_(seed),
      ids_(builder_.input("ids", DType::i32, {tokens_dim})),
      positions_(builder_.input("positions", DType::i32, {dim(3), tokens_dim})),
      rows_(builder_.input("rows", DType::i32, {rows_dim})) {
  const ParameterId table = parameter({vocabulary, width});
  made_.push_back(builder_.add("embed", op::Embedding{}, {ids_}, {table}));
  read_.push_back(false);
  for (int i = 6 + pick(20); i > 0; --i) add_node();
  finish();
}

ParameterId RandomGraph::parameter(std::vector<int64_t> shape, float middle) {
  std::normal_distribution<float> normal(middle, 0.3F);
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine_);
  const std::string name = next_name("w");
  weights_->add(name, shape, std::move(values));
  return builder_.parameter(name, std::move(shape), ParameterRole::linear);
}

ValueId RandomGraph::any() {
  const int index = pick(static_cast<int>(made_.size()));
  read_[static_cast<size_t>(index)] = true;
  return made_[static_cast<size_t>(index)];
}

/// Products of products and sums of sums grow beyond all bounds, and with them the rounding that the test
/// must not mistake for a wrong value.
ValueId RandomGraph::tamed(ValueId x) {
  return builder_.add(next_name("tamed"), op::RmsNorm{0.1F, 0}, {x}, {parameter({width}, 1)});
}

ValueId RandomGraph::heads(ValueId x, int64_t count) {
  return builder_.add(next_name("heads"), op::Reshape{{tokens_dim, dim(count), dim(width / count)}}, {x});
}

ValueId RandomGraph::flat(ValueId x) {
  return builder_.add(next_name("flat"), op::Reshape{{tokens_dim, dim(width)}}, {x});
}

void RandomGraph::add_rope() {
  const op::Rope rope{4, {1.0F, 0.25F}, {0, 2}, pick(2) == 0 ? 1.0F : 1.25F};
  made_.push_back(flat(builder_.add(next_name("rope"), rope, {heads(any(), 2), positions_})));
}

void RandomGraph::add_attention() {
  const StateId cache = builder_.state(next_name("cache"), State::Kind::key_value_cache, {2, 4});
  const ValueId key = builder_.add(next_name("key"), op::Slice{4, 8}, {heads(any(), 2)});
  const ValueId value = builder_.add(next_name("value"), op::Slice{0, 4}, {heads(any(), 2)});
  made_.push_back(builder_.add(next_name("attention"), op::Attention{4, 2, 4, 0.5F},
                               {heads(any(), 4), key, value}, {}, cache));
}

void RandomGraph::add_delta_net() {
  // One key head of 4 and 4 value heads of 4: 2 · 4 + 16 channels.
  const ValueId wide = builder_.add(next_name("qkv"), op::Linear{}, {any()}, {parameter({24, width})});
  const ValueId convolved =
      builder_.add(next_name("convolution"), op::CausalConvolution{4}, {wide}, {parameter({24, 1, 4})},
                   builder_.state(next_name("taps"), State::Kind::convolution, {24, 3}));
  const ValueId b = builder_.add(next_name("b"), op::Linear{}, {any()}, {parameter({4, width})});
  const ValueId a = builder_.add(next_name("a"), op::Linear{}, {any()}, {parameter({4, width})});
  const ValueId out = builder_.add(next_name("delta"), op::GatedDeltaNet{1, 4, 4, 4, 1e-6F},
                                   {convolved, b, a}, {parameter({4}), parameter({4})},
                                   builder_.state(next_name("memory"), State::Kind::delta_net, {4, 4, 4}));
  made_.push_back(flat(builder_.add(next_name("gated_norm"), op::GatedRmsNorm{0.1F},
                                    {heads(out, 4), heads(any(), 4)}, {parameter({4}, 1)})));
}

void RandomGraph::add_experts() {
  const ValueId x = tamed(any());
  const ValueId router = builder_.add(next_name("router"), op::Linear{}, {x}, {parameter({5, width})});
  std::vector<ParameterId> matrices;
  for (int i = 0; i < 5; ++i) {
    matrices.push_back(parameter({12, width}));
    matrices.push_back(parameter({12, width}));
    matrices.push_back(parameter({width, 12}));
  }
  made_.push_back(builder_.add(next_name("experts"), op::MixtureOfExperts{5, 2, 12, pick(2) == 0},
                               {x, router}, matrices));
}

void RandomGraph::add_node() {
  switch (pick(10)) {
    case 0:
      made_.push_back(builder_.add(next_name("linear"), op::Linear{}, {any()},
                                   {parameter({width, width}), parameter({width})}));
      break;
    case 1:
      made_.push_back(builder_.add(next_name("norm"), op::RmsNorm{0.1F, 1}, {any()}, {parameter({width})}));
      break;
    case 2:
      made_.push_back(tamed(builder_.add(next_name("add"), op::Add{}, {any(), any()})));
      break;
    case 3:
      made_.push_back(tamed(builder_.add(next_name("silu"), op::SiluMultiply{}, {any(), any()})));
      break;
    case 4:
      made_.push_back(builder_.add(next_name("sigmoid"), op::SigmoidMultiply{}, {any(), any()}));
      break;
    case 5:
      add_attention();
      break;
    case 6:
      add_delta_net();
      break;
    case 7:
      add_experts();
      break;
    default:
      add_rope();
      break;
  }
  read_.push_back(false);
}

/// Every value must have a reader: what is left over is returned, reshaped and returned, or summed up.
void RandomGraph::finish() {
  ValueId sum = any();
  for (size_t i = 0; i < made_.size(); ++i) {
    const int fate = pick(4);
    if (fate == 0) builder_.output(made_[i]);
    if (fate == 1) builder_.output(heads(made_[i], 2));
    if (fate > 1 && !read_[i]) {
      sum = builder_.add(next_name("sum"), op::Add{}, {sum, made_[i]});
    }
  }
  const ValueId gathered = builder_.add("gather", op::GatherRows{}, {sum, rows_});
  builder_.output(builder_.add("head", op::Linear{}, {gathered}, {parameter({vocabulary, width})}));
  auto graph = std::move(builder_).build();
  if (graph) {
    graph_ = std::make_shared<const Graph>(std::move(*graph));
  } else {
    ADD_FAILURE() << graph.error().message;
  }
}

}  // namespace hexlm
