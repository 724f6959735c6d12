#pragma once

#include <string>

/// Absolute path of a file or folder below tests/data.
inline std::string test_data(const std::string& name) { return std::string(HEXLM_TEST_DATA) + "/" + name; }
