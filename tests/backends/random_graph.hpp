#pragma once

#include <memory>
#include <random>

#include "support.hpp"

namespace hexlm {

/// A valid graph of random wiring over every op, 16 wide, with weights to run it; the inputs are ids,
/// positions and rows as a decoder's. Values are read once, often or long after they were made, reshaped,
/// sliced and returned, so that a wrong guess about who still needs which memory shows.
class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed);
  std::shared_ptr<const Graph> graph() const { return graph_; }
  std::shared_ptr<const TestWeights> weights() const { return weights_; }

  static constexpr int64_t vocabulary = 24;

 private:
  static constexpr int64_t width = 16;
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(engine_); }
  std::string next_name(const char* what) { return what + std::to_string(names_++); }
  ParameterId parameter(std::vector<int64_t> shape, float middle = 0);
  ValueId any();
  ValueId tamed(ValueId x);
  ValueId heads(ValueId x, int64_t count);
  ValueId flat(ValueId x);
  void add_node();
  void add_rope();
  void add_attention();
  void add_delta_net();
  void add_experts();
  void finish();

  std::mt19937 engine_;
  int names_ = 0;
  GraphBuilder builder_;
  ValueId ids_;
  ValueId positions_;
  ValueId rows_;
  std::vector<ValueId> made_;  // [T, width]
  std::vector<bool> read_;
  std::shared_ptr<TestWeights> weights_ = std::make_shared<TestWeights>();
  std::shared_ptr<const Graph> graph_;
};

}  // namespace hexlm
