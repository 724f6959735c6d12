#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantization/runtime_adapters.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

std::string adapter_folder(const std::string& name) {
  return test_data("reference/lora_" + name + "/adapter");
}

std::shared_ptr<const Model> open_base(const std::string& name,
                                       const std::vector<AdapterChoice>& merged = {}) {
  const auto model = Model::open(test_data("reference/" + name + "/checkpoint"), {1, true, merged});
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : nullptr;
}

class AdaptedSession : public testing::Test {
 protected:
  std::unique_ptr<Session> session_of(const std::shared_ptr<const Model>& model) {
    SessionOptions options;
    options.precision = Precision::high;
    options.threads = 2;
    auto session = Session::create(model, options);
    EXPECT_TRUE(session) << session.error().message;
    return std::move(*session);
  }
  void apply(Session& session, const std::vector<AdapterChoice>& choices) {
    auto updates = open_runtime_updates(choices, *session.model().graph(), *session.model().weights());
    ASSERT_TRUE(updates) << updates.error().message;
    ASSERT_TRUE(session.set_adapters(*std::move(updates)));
  }
  /// Logits after a prompt, from an empty state.
  std::vector<float> answer(Session& session) {
    session.reset();
    const std::vector<int32_t> prompt = {5, 60, 7, 300, 11, 2, 99};
    const auto logits = session.forward_last(prompt);
    EXPECT_TRUE(logits);
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
};

double distance_of(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST_F(AdaptedSession, AdaptersAreSwitchedBetweenRequests) {
  const auto model = open_base("qwen2_tied");
  const auto session = session_of(model);
  const std::vector<float> plain = answer(*session);
  const std::vector<AdapterChoice> first = {{adapter_folder("qwen2_tied_plain"), 1}};
  const std::vector<AdapterChoice> second = {{adapter_folder("qwen2_tied_dora"), 1}};
  apply(*session, first);
  const std::vector<float> with_first = answer(*session);
  apply(*session, second);
  const std::vector<float> with_second = answer(*session);
  EXPECT_GT(distance_of(with_first, plain), 1e-2);
  EXPECT_GT(distance_of(with_second, with_first), 1e-2);
  apply(*session, first);
  EXPECT_EQ(answer(*session), with_first);
  apply(*session, {});
  EXPECT_EQ(answer(*session), plain);
}

TEST_F(AdaptedSession, WeightsAndSeveralAdaptersGiveTheMergedModel) {
  const std::vector<AdapterChoice> both = {{adapter_folder("qwen2_tied_plain"), 0.7},
                                           {adapter_folder("qwen2_tied_patterns_rslora"), -0.4}};
  const auto merged = session_of(open_base("qwen2_tied", both));
  const auto session = session_of(open_base("qwen2_tied"));
  apply(*session, both);
  EXPECT_LE(distance_of(answer(*session), answer(*merged)), 1e-5);
}

TEST_F(AdaptedSession, AnotherBaseIsRefused) {
  const auto model = open_base("qwen3");
  const auto updates =
      open_runtime_updates({{adapter_folder("qwen3_5_text_plain"), 1}}, *model->graph(), *model->weights());
  ASSERT_FALSE(updates);
  EXPECT_EQ(updates.error().code, ErrorCode::bad_input);
  EXPECT_THAT(updates.error().message, testing::HasSubstr("q_proj"));
}

}  // namespace
}  // namespace hexlm
