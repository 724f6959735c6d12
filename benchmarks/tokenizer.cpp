#include "tokenizer/tokenizer.hpp"

#include <benchmark/benchmark.h>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

// Run from the project's root. HEXLM_BENCH_TOKENIZER (a tokenizer.json) and HEXLM_BENCH_TEXT (UTF-8 text)
// name other files than the test data. One thread; rates are of processor time, so that a loaded machine
// changes little.

namespace {

constexpr const char* default_tokenizer = "tests/data/tokenizers/qwen3/tokenizer.json";
/// English and Chinese passages, one JSON object a line.
constexpr const char* default_text = "tests/data/tokenizers/qwen3/encodings.jsonl";

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string read_passages(const char* path) {
  std::ifstream file(path);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("text")) text += json["text"].get<std::string>();
  }
  return text;
}

const std::string& tokenizer_json() {
  static const char* const path = std::getenv("HEXLM_BENCH_TOKENIZER");
  static const std::string json = read_file(path != nullptr ? path : default_tokenizer);
  return json;
}

const std::string& text() {
  static const char* const path = std::getenv("HEXLM_BENCH_TEXT");
  static const std::string text = path != nullptr ? read_file(path) : read_passages(default_text);
  return text;
}

hexlm::Result<hexlm::Tokenizer> tokenizer_or_skip(benchmark::State& state) {
  auto tokenizer = hexlm::Tokenizer::parse(tokenizer_json(), "tokenizer.json");
  if (!tokenizer) state.SkipWithError(tokenizer.error().message.c_str());
  if (text().empty()) state.SkipWithError("the text is missing or empty");
  return tokenizer;
}

void count_bytes(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void load(benchmark::State& state) {
  for (auto _ : state) {
    auto tokenizer = hexlm::Tokenizer::parse(tokenizer_json(), "tokenizer.json");
    if (!tokenizer) {
      state.SkipWithError(tokenizer.error().message.c_str());
      break;
    }
    benchmark::DoNotOptimize(tokenizer);
  }
  count_bytes(state, tokenizer_json().size());
}

void encode(benchmark::State& state) {
  const auto tokenizer = tokenizer_or_skip(state);
  for (auto _ : state) {
    auto ids = tokenizer->encode(text());
    benchmark::DoNotOptimize(ids);
  }
  count_bytes(state, text().size());
}

void decode(benchmark::State& state) {
  const auto tokenizer = tokenizer_or_skip(state);
  const auto ids = tokenizer ? tokenizer->encode(text()) : hexlm::Result<std::vector<int32_t>>();
  if (!ids) state.SkipWithError(ids.error().message.c_str());
  for (auto _ : state) {
    auto decoded = tokenizer->decode(*ids);
    benchmark::DoNotOptimize(decoded);
  }
  count_bytes(state, text().size());
}

}  // namespace

BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(encode)->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
