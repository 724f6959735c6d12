#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "formats/json.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {

struct ProgramResult {
  int code = -1;  ///< exit code, or 128 + signal
  std::string out;
  std::string err;

  /// stdout as JSON; a test failure when it is none.
  Json json() const;
  /// Last non-empty line of stderr.
  std::string last_error_line() const;
};

struct ProgramOptions {
  // g++ warns of designated initializers that leave out members without initializer.
  // NOLINTBEGIN(readability-redundant-member-init)
  std::string input = {};                     ///< given on stdin, which then ends
  std::vector<std::string> environment = {};  ///< more "NAME=value"
  // NOLINTEND(readability-redundant-member-init)
  /// Sends SIGINT when stdout holds this many bytes; 0 never.
  size_t interrupt_after = 0;
  /// Bytes that a file may grow to, which stands for a full disk; 0 for no limit.
  size_t file_size_limit = 0;
  /// Bytes of address space; 0 for no limit.
  size_t address_space_limit = 0;
  /// Closes the reading end of stdout at once.
  bool close_stdout = false;
  /// A file that stdout goes to instead; "" for the result.
  std::string stdout_file = {};  // NOLINT(readability-redundant-member-init)
  /// Leaves stdin open and silent, waits until the program sleeps, and sends this signal; 0 for none.
  int signal_when_waiting = 0;
};

/// Runs the built program (without HEXLM_* variables of the surroundings) and waits for it.
ProgramResult run_hexlm(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

/// Runs it on a pseudo-terminal, as a user at the keyboard: each step waits until the output holds the text,
/// then types the keys. Returns everything that the terminal showed; `code` as above.
struct TypedKeys {
  std::string wait_for;
  std::string keys;
};
ProgramResult type_to_hexlm(const std::vector<std::string>& arguments, const std::vector<TypedKeys>& steps);

inline std::string tiny_model() { return test_data("models/tiny-vl"); }
inline std::string reference_checkpoint(const std::string& name) {
  return test_data("reference/" + name + "/checkpoint");
}

}  // namespace hexlm
