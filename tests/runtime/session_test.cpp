#include "runtime/session.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors.hpp"
#include "graph/graph.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

struct Reference {
  std::shared_ptr<const Model> model;
  std::vector<int32_t> ids;   ///< "short" of case.json
  std::vector<float> logits;  ///< transformers', [ids, vocabulary]
};

Reference load_reference(const std::string& name) {
  Reference reference;
  const std::string folder = test_data("reference/" + name);
  auto model = Model::open(folder + "/checkpoint", {2, true, {}});
  EXPECT_TRUE(model) << model.error().message;
  if (model) reference.model = *model;
  const auto facts = read_json(folder + "/case.json");
  EXPECT_TRUE(facts);
  reference.ids = (*facts)["short"].get<std::vector<int32_t>>();
  const auto expected = SafetensorsFile::open(folder + "/expected.safetensors");
  EXPECT_TRUE(expected);
  const TensorView* logits = expected->find("short.logits");
  EXPECT_NE(logits, nullptr);
  reference.logits.resize(static_cast<size_t>(logits->elements()));
  std::memcpy(reference.logits.data(), logits->bytes.data(), logits->bytes.size());
  return reference;
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
  EXPECT_EQ(got.size(), expected.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// ‖out − expected‖ / ‖expected‖ against transformers. Its chunked delta rule is itself 1.6e-5 from exact
/// arithmetic on qwen3_5_text (docs/decisions.md).
double tolerance_of(const std::string& name) { return name == "qwen3_5_text" ? 3e-5 : 1e-5; }

class SessionOnReference : public testing::TestWithParam<const char*> {};

TEST_P(SessionOnReference, ChunksOfAnySizeGiveTheReferenceLogits) {
  const Reference reference = load_reference(GetParam());
  ASSERT_TRUE(reference.model);
  for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}}) {
    SessionOptions options = high_precision();
    options.chunk = chunk;
    const auto session = open_session(reference.model, options);
    ASSERT_TRUE(session);
    std::vector<float> all;
    int64_t next = 0;
    const auto count = static_cast<int64_t>(reference.ids.size());
    const Status status = session->forward(reference.ids, count,
                                           [&](int64_t first, int64_t rows, std::span<const float> logits) {
                                             EXPECT_EQ(first, next);
                                             next += rows;
                                             all.insert(all.end(), logits.begin(), logits.end());
                                             return Status();
                                           });
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(next, count);
    EXPECT_LE(relative_error(all, reference.logits), tolerance_of(GetParam())) << "chunk " << chunk;
    EXPECT_EQ(session->length(), count);
  }
}

TEST_P(SessionOnReference, GivesOnlyTheRowsThatWereWanted) {
  const Reference reference = load_reference(GetParam());
  ASSERT_TRUE(reference.model);
  SessionOptions options = high_precision();
  options.chunk = 16;
  const auto session = open_session(reference.model, options);
  const auto count = static_cast<int64_t>(reference.ids.size());
  const auto vocabulary = static_cast<size_t>(reference.model->config().text.vocabulary_size);
  const auto last_rows = [&](int64_t wanted) {
    std::vector<float> rows;
    int64_t first_seen = -1;
    session->reset();
    EXPECT_TRUE(
        session->forward(reference.ids, wanted, [&](int64_t first, int64_t, std::span<const float> logits) {
          if (first_seen < 0) first_seen = first;
          rows.insert(rows.end(), logits.begin(), logits.end());
          return Status();
        }));
    EXPECT_EQ(first_seen, count - wanted);
    EXPECT_EQ(rows.size(), static_cast<size_t>(wanted) * vocabulary);
    return rows;
  };
  // All rows are compared with transformers above; which of them are asked for changes no bit of them.
  const std::vector<float> all = last_rows(count);
  EXPECT_LE(relative_error(all, reference.logits), tolerance_of(GetParam()));
  const std::vector<float> wanted = last_rows(20);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), all.end() - static_cast<int64_t>(20 * vocabulary)));

  session->reset();
  ASSERT_TRUE(session->forward(reference.ids, 0, nullptr));
  EXPECT_EQ(session->length(), count);
}

INSTANTIATE_TEST_SUITE_P(Architectures, SessionOnReference, testing::Values("qwen2_tied", "qwen3_5_text"));

TEST(Session, RefusesWhatDoesNotFitTheContext) {
  SessionOptions options = high_precision();
  options.context = 8;
  const auto session = open_session(open_tiny_model(), options);
  ASSERT_TRUE(session);
  EXPECT_EQ(session->capacity(), 8);
  const std::vector<int32_t> ids(6, 5);
  ASSERT_TRUE(session->forward_last(ids));
  const auto refused = session->forward_last(ids);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::limit);
  EXPECT_THAT(refused.error().message, HasSubstr("holds 6 tokens, 6 more don't fit its 8"));
  EXPECT_EQ(session->length(), 6);
}

TEST(Session, RefusesIdsOutsideTheVocabulary) {
  const auto session = open_session(open_tiny_model(), high_precision());
  ASSERT_TRUE(session);
  for (const int32_t id : {-1, 6144}) {
    const auto refused = session->forward_last(std::vector<int32_t>{1, id});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::bad_input);
    EXPECT_THAT(refused.error().message, HasSubstr("token 1 of the input is id " + std::to_string(id)));
  }
  EXPECT_FALSE(session->forward_last(std::span<const int32_t>()));
  EXPECT_EQ(session->length(), 0);
}

TEST(Session, ChecksItsOptions) {
  SessionOptions options = high_precision();
  options.context = 8193;
  auto refused = Session::create(open_tiny_model(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_THAT(refused.error().message, HasSubstr("8193"));
  EXPECT_THAT(refused.error().message, HasSubstr("8192"));
  options = high_precision();
  options.chunk = 0;
  EXPECT_FALSE(Session::create(open_tiny_model(), options));
  options = high_precision();
  options.backend = "cqu";
  refused = Session::create(open_tiny_model(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
}

TEST(Session, StopsWhenTheCallbackFails) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<int32_t> ids(5, 7);
  const Status status = session->forward(ids, 5, [](int64_t, int64_t, std::span<const float>) -> Status {
    return fail(ErrorCode::limit, "enough");
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "enough");
}

TEST(Placement, NamesWhatRunsElsewhere) {
  GraphBuilder builder;
  ValueId value = builder.input("x", DType::f32, {tokens_dim, dim(4)});
  for (int i = 0; i < 7; ++i) value = builder.add("add." + std::to_string(i), op::Add{}, {value, value});
  builder.output(value);
  const auto graph = std::move(builder).build();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(describe_placement(std::vector<std::string>(7, "cpu"), *graph), "cpu 7/7 nodes");
  EXPECT_EQ(describe_placement({"dsp", "cpu", "dsp", "dsp", "dsp", "cpu", "dsp"}, *graph),
            "dsp 5/7 nodes, cpu 2 (add.1, add.5)");
}

}  // namespace
}  // namespace hexlm
