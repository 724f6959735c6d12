#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <simdjson.h>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/log.hpp"
#include "formats/safetensors.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
/// An index holds about 100 bytes a tensor: room for more than half a million tensors.
constexpr uint64_t index_limit = uint64_t{64} << 20;

constexpr const char* out_of_memory = "memory ran out while its JSON was read";

/// Which shard holds which tensors, as the index claims.
using Claims = std::map<std::string, std::vector<std::string>>;

struct Index {
  Claims claims;
  std::optional<double> total_size;  ///< metadata.total_size: bytes of all tensors
};

/// True for a relative path that stays within the folder it is joined to.
bool stays_inside(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  const fs::path path(name);
  if (path.is_absolute() || !path.has_filename()) return false;
  for (const fs::path& part : path) {
    if (part == ".." || part == ".") return false;
  }
  return true;
}

/// Describes what a folder without safetensors holds instead, for the hint.
std::string describe_alternative(const std::string& folder) {
  std::error_code error;
  std::string safetensors;
  bool pickled = false;
  bool gguf = false;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path path = entry->path();
    if (path.extension() == ".safetensors") safetensors = path.filename().string();
    pickled |= path.extension() == ".bin" || path.extension() == ".pt" || path.extension() == ".pth";
    gguf |= path.extension() == ".gguf";
  }
  if (!safetensors.empty()) {
    return fmt::format("it holds {}; a checkpoint's only file is named {}, shards come with {}", safetensors,
                       single_name, index_name);
  }
  if (pickled)
    return "it holds pickled weights (.bin, .pt), which are never loaded: convert them to safetensors";
  if (gguf) return "it holds a GGUF file: give that file's path";
  return "give the folder that a Hugging Face model was downloaded to";
}

Status check_folder(const std::string& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: no such folder", folder), "check the path");
  }
  if (!fs::is_directory(status)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: expected a checkpoint folder, got a file", folder),
                "give the folder that holds the file");
  }
  return {};
}

Result<Index> read_index(const std::string& path) {
  HEXLM_ASSIGN(const std::string text, read_file(path, index_limit));
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", path, what), "download the index again");
  };
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(text).get(root); error != simdjson::SUCCESS) {
    if (error == simdjson::MEMALLOC)
      return fail(ErrorCode::limit, fmt::format("{}: {}", path, out_of_memory));
    return bad(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  }
  simdjson::dom::object map;
  if (root["weight_map"].get(map) != simdjson::SUCCESS) return bad("weight_map: expected an object");
  Index index;
  Claims& claims = index.claims;
  std::map<std::string_view, std::string_view> shard_of;
  for (const simdjson::dom::key_value_pair member : map) {
    std::string_view shard;
    if (member.value.get(shard) != simdjson::SUCCESS) {
      return bad(fmt::format("tensor '{}': expected a file name", member.key));
    }
    const std::string name(shard);
    if (!stays_inside(name)) {
      return bad(fmt::format("tensor '{}': file '{}' is not a path within the folder", member.key, name));
    }
    const auto [former, added] = shard_of.emplace(member.key, shard);
    if (!added) {
      return bad(
          fmt::format("tensor '{}' is listed twice, in '{}' and '{}'", member.key, former->second, name));
    }
    claims[name].emplace_back(member.key);
  }
  if (claims.empty()) return bad("weight_map lists no tensor");
  double total_size = 0;
  const simdjson::dom::element metadata = root;
  if (metadata["metadata"]["total_size"].get(total_size) == simdjson::SUCCESS) index.total_size = total_size;
  return index;
}

Result<SafetensorsFile> open_shard(const std::string& folder, const std::string& shard,
                                   const std::vector<std::string>& claimed) {
  const std::string path = (fs::path(folder) / shard).string();
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: shard is missing; the index lists {} tensors in it, the first is '{}'", path,
                            claimed.size(), claimed.front()),
                "download the missing file");
  }
  HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  for (const std::string& name : claimed) {
    if (file.find(name) == nullptr) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: tensor '{}' is listed in the index but not among the shard's {} tensors",
                              path, name, file.tensors().size()),
                  "the index and the shards are of different versions: download them again");
    }
  }
  return file;
}

/// `shards` in the order of `claims`.
Status check_listed(const Claims& claims, const std::vector<SafetensorsFile>& shards) {
  auto shard = shards.begin();
  for (const auto& [name, claimed] : claims) {
    const std::set<std::string_view> listed(claimed.begin(), claimed.end());
    for (const TensorView& tensor : shard->tensors()) {
      if (listed.contains(tensor.name)) continue;
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: tensor '{}' is not among the {} that the index lists in this shard",
                              shard->file().path(), tensor.name, claimed.size()),
                  "the index and the shards are of different versions: download them again");
    }
    ++shard;
  }
  return {};
}

/// Only a warning: some writers count shared tensors twice, and the shards are checked one by one.
void compare_total_size(const std::string& index_path, double total_size,
                        const std::vector<SafetensorsFile>& shards) {
  uint64_t bytes = 0;
  for (const SafetensorsFile& shard : shards) {
    for (const TensorView& tensor : shard.tensors()) bytes += tensor.bytes.size();
  }
  if (static_cast<double>(bytes) == total_size) return;
  log_warning(fmt::format("{}: metadata.total_size is {:.0f}, the shards hold {} bytes of tensors",
                          index_path, total_size, bytes));
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  HEXLM_TRY(check_folder(folder));
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const std::string single = (fs::path(folder) / single_name).string();
  const std::string index = (fs::path(folder) / index_name).string();
  std::error_code error;
  Index listed;
  if (fs::exists(single, error)) {  // as transformers does, the single file goes before the index
    HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(single));
    checkpoint.shards_.push_back(std::move(file));
  } else if (fs::exists(index, error)) {
    HEXLM_ASSIGN(listed, read_index(index));
    for (const auto& [shard, claimed] : listed.claims) {
      HEXLM_ASSIGN(SafetensorsFile file, open_shard(folder, shard, claimed));
      checkpoint.shards_.push_back(std::move(file));
    }
  } else {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: holds neither {} nor {}", folder, single_name, index_name),
                describe_alternative(folder));
  }
  for (size_t shard = 0; shard < checkpoint.shards_.size(); ++shard) {
    const SafetensorsFile& file = checkpoint.shards_[shard];
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      const std::string& name = file.tensors()[i].name;
      const auto [former, added] = checkpoint.index_.emplace(name, std::pair(shard, i));
      if (!added) {
        return fail(ErrorCode::bad_input,
                    fmt::format("tensor '{}' lies in two shards, {} and {}", name,
                                checkpoint.shards_[former->second.first].file().path(), file.file().path()),
                    "the shards are of different versions: download them again");
      }
    }
  }
  HEXLM_TRY(check_listed(listed.claims, checkpoint.shards_));
  if (listed.total_size) compare_total_size(index, *listed.total_size, checkpoint.shards_);
  return checkpoint;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return nullptr;
  return &shards_[found->second.first].tensors()[found->second.second];
}

std::vector<const TensorView*> Checkpoint::tensors() const {
  std::vector<const TensorView*> all;
  all.reserve(index_.size());
  for (const SafetensorsFile& shard : shards_) {
    for (const TensorView& tensor : shard.tensors()) all.push_back(&tensor);
  }
  return all;
}

const MappedFile* Checkpoint::file_of(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &shards_[found->second.first].file();
}

}  // namespace hexlm
