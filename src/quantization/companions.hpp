#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/package.hpp"

namespace hexlm {

/// A file of the checkpoint that went into the package, for the manifest.
struct CompanionFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t hash = 0;  ///< XXH3-64 of the whole file
};

/// What was copied: where it came from, and what lies in the package now.
struct Companions {
  std::vector<CompanionFile> sources;
  std::vector<PackageFile> files;
};

/// Copies what a package takes over from its checkpoint as it is (tokenizer, chat template, generation and
/// image settings) and writes chat_template.jinja where the template is only a string in another file. Absent
/// files are skipped. Errors: bad_input for a file that is no JSON where it should be; what writing reports.
Result<Companions> copy_companions(const std::string& checkpoint, const std::string& package);
/// Writes the files that a GGUF file holds. Errors: what writing reports.
Result<Companions> write_companions(const std::map<std::string, std::string>& files,
                                    const std::string& package);

/// Writes the package's config.json: every run-time setting with its default, sampling as the checkpoint's
/// generation_config.json has it.
Status write_runtime_defaults(const std::string& checkpoint, const std::string& package);

}  // namespace hexlm
