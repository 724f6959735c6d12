#include "evaluation/task_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/csv.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Task> task_of(const std::string& name, const std::string& content,
                     Scoring scoring = Scoring::automatic) {
  const TemporaryFolder folder;
  write_test_file(folder.file(name), content);
  write_test_file(folder.file("there.png"), "x");
  return read_task(folder.file(name), scoring);
}

TEST(ReadTask, TakesTheOrders) {
  const auto task = read_task(test_data("models/tiny-vl/eval/orders.jsonl"), Scoring::automatic);
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ(task->rows.size(), 60U);
  EXPECT_EQ(task->rows[59].line, 60U);
  EXPECT_EQ(task->rows[0].scoring, Scoring::json);
  EXPECT_EQ(task->rows[0].expected["count"], 20);
}

TEST(ReadTask, DecidesHowToScore) {
  const auto task = task_of("t.jsonl", R"({"prompt": "a", "expected": "b"}
{"prompt": "a", "expected": [1], "system": "s", "image": "there.png"}

{"prompt": "a", "expected": "y", "choices": ["x", "y"]}
{"prompt": "a", "expected": 0, "choices": ["x", "y"], "subject": "ignored"}
{"prompt": "a", "expected": "{\"k\": 2}"}
)");
  ASSERT_TRUE(task) << task.error().message;
  ASSERT_EQ(task->rows.size(), 5U);
  EXPECT_EQ(task->rows[0].scoring, Scoring::text);
  EXPECT_EQ(task->rows[1].scoring, Scoring::json);
  EXPECT_THAT(task->rows[1].image, HasSubstr("/there.png"));
  EXPECT_EQ(task->rows[2].expected_choice, 1U);
  EXPECT_EQ(task->rows[2].line, 4U);
  EXPECT_EQ(task->rows[3].expected_choice, 0U);
  EXPECT_EQ(task->rows[4].expected["k"], 2);
}

TEST(ReadTask, ListsEveryBadLine) {
  std::string lines;
  for (int i = 0; i < 16; ++i) lines += "{\"prompt\": \"a\", \"expected\": \"b\"}\n";
  lines += "{\"prompt\": \"a\", \"expected\n";                                         // 17
  lines += "{\"prompt\": \"a\", \"expected\": \"b\", \"image\": \"absent.png\"}\n";    // 18
  lines += "{\"prompt\": \"a\", \"expected\": \"{not json\"}\n";                       // 19
  lines += "{\"prompt\": \"\", \"expected\": \"b\"}\n";                                // 20
  lines += "{\"prompt\": \"a\"}\n";                                                    // 21
  lines += "{\"prompt\": \"a\", \"expected\": \"z\", \"choices\": [\"x\", \"y\"]}\n";  // 22
  lines += "[1]\n";                                                                    // 23
  lines += "{\"prompt\": \"a\", \"expected\": 3}\n";                                   // 24
  const auto task = task_of("t.jsonl", lines);
  ASSERT_FALSE(task);
  EXPECT_EQ(task.error().code, ErrorCode::bad_input);
  const std::string& message = task.error().message;
  EXPECT_THAT(message, HasSubstr("8 of 24 rows can't be used"));
  for (int line = 17; line <= 24; ++line)
    EXPECT_THAT(message, HasSubstr("line " + std::to_string(line) + ":"));
  EXPECT_THAT(message, HasSubstr("absent.png does not exist"));
  EXPECT_THAT(message, HasSubstr("'expected' is no JSON"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(ReadTask, ChecksTheAskedScoring) {
  const std::string text_row = R"({"prompt": "a", "expected": "no json"})";
  EXPECT_FALSE(task_of("t.jsonl", text_row, Scoring::json));
  EXPECT_FALSE(task_of("t.jsonl", text_row, Scoring::choices));
  EXPECT_TRUE(task_of("t.jsonl", text_row, Scoring::text));
  EXPECT_FALSE(task_of("t.jsonl", R"({"prompt": "a", "expected": {"a": 1}})", Scoring::text));
  EXPECT_FALSE(task_of("t.jsonl", ""));
  EXPECT_FALSE(read_task("absent.jsonl", Scoring::automatic));
}

TEST(ReadTask, TakesTablesOfChoices) {
  const auto with_header =
      task_of("t.csv", "id,question,A,B,C,D,answer\n0,\"One, or two?\",1,2,3,4,B\n1,Three?,1,2,3,4,C\n");
  ASSERT_TRUE(with_header) << with_header.error().message;
  EXPECT_EQ(with_header->rows[0].prompt, "One, or two?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_THAT(with_header->rows[0].choices, ElementsAre(" A", " B", " C", " D"));
  EXPECT_EQ(with_header->rows[1].expected_choice, 2U);
  EXPECT_EQ(with_header->rows[1].line, 3U);
  const auto without = task_of("t.csv", "Three?,1,2,3,4,C\n");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->rows[0].expected_choice, 2U);
  const auto texts = task_of("t.csv", "prompt,expected\nhi,\"{\"\"a\"\": 1}\"\n");
  ASSERT_TRUE(texts) << texts.error().message;
  EXPECT_EQ(texts->rows[0].scoring, Scoring::json);
  const auto bad = task_of("t.csv", "question,A,B,answer\nq,1,2,E\nq,1,2\n");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("line 2: "));
  EXPECT_THAT(bad.error().message, HasSubstr("line 3: 3 fields, the first line has 4"));
}

TEST(ParseCsv, FollowsTheRules) {
  const auto records = parse_csv(
      "\xEF\xBB\xBF"
      "a,\"b\nc\",\"d\"\"e\"\r\n\r\n,x\n",
      "t");
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 2U);
  EXPECT_THAT((*records)[0].fields, ElementsAre("a", "b\nc", "d\"e"));
  EXPECT_THAT((*records)[1].fields, ElementsAre("", "x"));
  EXPECT_EQ((*records)[1].line, 4U);
  EXPECT_THAT(parse_csv("a\n\"b", "t").error().message, HasSubstr("line 2"));
  EXPECT_FALSE(parse_csv("\"a\"b", "t"));
}

}  // namespace
}  // namespace hexlm
