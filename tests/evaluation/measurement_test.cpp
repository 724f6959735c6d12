#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/bench_baseline.hpp"
#include "evaluation/profile.hpp"
#include "evaluation/sensors.hpp"
#include "runtime/tiny_model.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

TEST(CompareSpeed, TellsChangesFromNoise) {
  const std::vector<double> before = {100, 101, 99, 100, 102};
  EXPECT_EQ(compare_speed(before, {99, 100, 101, 98, 100}).verdict, SpeedChange::none);
  EXPECT_EQ(compare_speed(before, {60, 61, 59, 60, 60}).verdict, SpeedChange::slower);
  EXPECT_EQ(compare_speed(before, {120, 121, 119, 120, 118}).verdict, SpeedChange::faster);
  // A difference of 4 % is below what counts, however steady.
  EXPECT_EQ(compare_speed({100, 100, 100}, {96, 96, 96}).verdict, SpeedChange::none);
  // The same medians as in the second line, within samples that jump about.
  EXPECT_EQ(compare_speed({100, 60, 140, 100, 90}, {60, 30, 90, 60, 100}).verdict, SpeedChange::none);
  const BaselineRow row = compare_speed({100}, {80});
  EXPECT_DOUBLE_EQ(row.change, -0.2);
  EXPECT_DOUBLE_EQ(row.noise, least_speed_change);
}

Json bench_row(const char* name, int threads, const std::vector<double>& samples) {
  return {{"name", name},
          {"backend", "cpu"},
          {"threads", threads},
          {"precision", "normal"},
          {"samples", samples}};
}

TEST(CompareWithBaseline, PairsRows) {
  const Json old = {{"rows", Json::array({bench_row("pp8", 2, {10, 10}), bench_row("tg8", 2, {5, 5})})}};
  const Json rows =
      Json::array({bench_row("pp8", 1, {6, 6}), bench_row("tg8", 2, {5, 5}), bench_row("x", 2, {1})});
  const auto compared = compare_with_baseline(rows, old, "old.json");
  ASSERT_TRUE(compared) << compared.error().message;
  ASSERT_EQ(compared->size(), 2U);
  EXPECT_EQ((*compared)[0].verdict, SpeedChange::slower);  // one thread less
  EXPECT_EQ((*compared)[1].verdict, SpeedChange::none);
  EXPECT_EQ(to_json(*compared)[0]["verdict"], "slower");
  EXPECT_THAT(compare_with_baseline(rows, Json::array(), "old.json").error().message, HasSubstr("old.json"));
  EXPECT_FALSE(compare_with_baseline(rows, {{"rows", Json::array({{{"name", 1}}})}}, "old.json"));
}

TEST(Sensors, ReadWhatTheSystemExposes) {
  const TemporaryFolder root;
  const auto write = [&](const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root.file(path)).parent_path());
    write_test_file(root.file(path), content);
  };
  SensorReading nothing = read_sensors(root.path());
  EXPECT_FALSE(nothing.frequency_mhz || nothing.temperature_celsius || nothing.energy_joules ||
               nothing.battery_watts);
  write("proc/cpuinfo", "processor : 0\ncpu MHz\t\t: 2000.000\n\ncpu MHz\t\t: 3000.000\n");
  EXPECT_DOUBLE_EQ(*read_sensors(root.path()).frequency_mhz, 2500);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n");
  write("sys/devices/system/cpu/cpufreq/boost", "1\n");
  write("sys/class/thermal/thermal_zone0/temp", "41500\n");
  write("sys/class/thermal/thermal_zone1/temp", "-274000\n");
  write("sys/class/thermal/thermal_zone2/temp", "63000\n");
  write("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
  write("sys/class/powercap/intel-rapl:0:0/energy_uj", "3000000\n");
  write("sys/class/power_supply/BAT0/current_now", "-500000\n");
  write("sys/class/power_supply/BAT0/voltage_now", "4000000\n");
  const SensorReading reading = read_sensors(root.path());
  EXPECT_DOUBLE_EQ(*reading.frequency_mhz, 1800);
  EXPECT_DOUBLE_EQ(*reading.temperature_celsius, 63);
  EXPECT_DOUBLE_EQ(*reading.energy_joules, 5);
  EXPECT_DOUBLE_EQ(*reading.battery_watts, 2);
  SensorReading later = reading;
  later.energy_joules = 12;
  EXPECT_DOUBLE_EQ(sensors_json(reading, later)["energy_joules"].get<double>(), 7);
  later.energy_joules = 1;  // the counter wrapped around
  EXPECT_TRUE(sensors_json(reading, later)["energy_joules"].is_null());
}

TEST(ProfileNodes, CountsWorkAndTime) {
  const auto model = open_tiny_model();
  const auto session = open_session(model, high_precision());
  const auto prefill = profile(*session, 24, false);
  ASSERT_TRUE(prefill) << prefill.error().message;
  const auto decode = profile(*session, 3, true);
  ASSERT_TRUE(decode);
  EXPECT_EQ(prefill->name, "pp24");
  const auto find = [](const Profile& made, const std::string& name) {
    return *std::find_if(made.nodes.begin(), made.nodes.end(),
                         [&](const auto& node) { return node.name == name; });
  };
  const NodeProfile down = find(*prefill, "layers.5.mlp.down_proj");
  EXPECT_EQ(down.calls, 1);
  EXPECT_GT(down.seconds, 0);
  EXPECT_EQ(down.cost.macs, 24.0 * 768 * 256);
  // bf16 weights once, float32 inputs and outputs.
  EXPECT_EQ(down.cost.bytes, 2.0 * 768 * 256 + 4.0 * 24 * (768 + 256));
  const NodeProfile head = find(*decode, "lm_head");
  EXPECT_EQ(head.calls, 3);
  EXPECT_EQ(head.cost.macs, 3.0 * 6144 * 256);
  double sum = 0;
  for (const NodeProfile& node : prefill->nodes) sum += node.seconds;
  EXPECT_LE(sum, prefill->seconds);
  const Json json = profile_json(*prefill, 1e10);
  double share = 0;
  for (const Json& op : json["ops"]) share += op["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_EQ(json["nodes"].size(), prefill->nodes.size());
  EXPECT_GE(json["nodes"][0]["seconds"], json["nodes"][1]["seconds"]);
  const Json trace = chrome_trace({*prefill, *decode});
  EXPECT_EQ(trace["traceEvents"].size(), 2 + prefill->events.size() + decode->events.size());
  EXPECT_EQ(trace["traceEvents"][1]["ph"], "X");
  EXPECT_EQ(trace["traceEvents"].back()["pid"], 2);
}

TEST(ProfileNodes, CountsAttentionOverTheCache) {
  const auto model = *Model::open(test_data("reference/qwen3/checkpoint"), {1, true, {}});
  const Graph& graph = *model->graph();
  const auto node = std::find_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& each) {
    return std::holds_alternative<op::Attention>(each.op);
  });
  ASSERT_NE(node, graph.nodes().end());
  const auto& attention = std::get<op::Attention>(node->op);
  const NodeCost cost = cost_of(graph, *node, *model->weights(), {1, 1, 0}, 9, Precision::high);
  // One query sees ten keys and ten values.
  EXPECT_EQ(cost.macs, 2.0 * 10 * static_cast<double>(attention.query_heads * attention.head_dim));
}

}  // namespace
}  // namespace hexlm
