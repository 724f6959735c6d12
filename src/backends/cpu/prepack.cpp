#include "backends/cpu/prepack.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <vector>

#include "backends/cpu/prepared_weights.hpp"
#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/prepacked.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

/// A matrix to pack and what the manifest will say of it.
struct Job {
  PreparedMatrix matrix;
  PrepackedTensor tensor;
  size_t scale_bytes() const { return static_cast<size_t>(tensor.scale_count) * sizeof(uint16_t); }
};

Result<std::vector<Job>> find_jobs(const std::shared_ptr<const Package>& package,
                                   std::span<const Graph* const> graphs) {
  std::vector<Job> jobs;
  for (const Graph* graph : graphs) {
    HEXLM_ASSIGN(const PreparedWeights weights,
                 PreparedWeights::describe(*graph, package, Precision::normal));
    for (size_t i = 0; i < graph->parameters().size(); ++i) {
      const PreparedMatrix& matrix = weights.matrix({static_cast<int32_t>(i)});
      if (!matrix.is_packed) continue;
      Job job;
      job.matrix = matrix;
      job.tensor.name = graph->parameters()[i].name;
      job.tensor.made_from = package->find_tensor(job.tensor.name)->checksum;
      job.tensor.has_offsets = !matrix.stored.codec.symmetric;
      job.tensor.code_bytes = static_cast<int64_t>(packed_code_bytes(matrix.packed));
      job.tensor.scale_count = static_cast<int64_t>(packed_scale_bytes(matrix.packed) / sizeof(uint16_t));
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

/// Packs one matrix after the other into the same memory and writes it.
class Packer {
 public:
  static Result<Packer> create(const std::vector<Job>& jobs, int threads) {
    size_t codes = 0;
    size_t scales = 0;
    for (const Job& job : jobs) {
      codes = std::max(codes, static_cast<size_t>(job.tensor.code_bytes));
      scales = std::max(scales, job.scale_bytes());
    }
    HEXLM_ASSIGN(AlignedBuffer code_buffer, AlignedBuffer::allocate(codes));
    HEXLM_ASSIGN(AlignedBuffer scale_buffer, AlignedBuffer::allocate(scales));
    HEXLM_ASSIGN(AlignedBuffer offset_buffer, AlignedBuffer::allocate(scales));
    HEXLM_ASSIGN(const KernelSet* kernels, select_kernels());
    return Packer(*kernels, std::move(code_buffer), std::move(scale_buffer), std::move(offset_buffer),
                  threads);
  }

  /// Also sets the tensor's checksum.
  Status write(Job& job, SafetensorsWriter& writer) {
    PackedMatrix packed = job.matrix.packed;
    packed.codes = codes_.data();
    packed.scales = scales_.as<uint16_t>();
    packed.offsets = job.tensor.has_offsets ? offsets_.as<uint16_t>() : nullptr;
    pool_->run(job.matrix.tiles(), 4, [&](int64_t begin, int64_t end, int) {
      kernels_->pack(job.matrix.stored, packed, begin, end);
    });
    Hasher hasher;
    const auto put = [&](const AlignedBuffer& buffer, size_t bytes) -> Status {
      const std::span<const std::byte> part(buffer.data(), bytes);
      hasher.update(part);
      return writer.write(part);
    };
    HEXLM_TRY(put(codes_, static_cast<size_t>(job.tensor.code_bytes)));
    HEXLM_TRY(put(scales_, job.scale_bytes()));
    if (job.tensor.has_offsets) HEXLM_TRY(put(offsets_, job.scale_bytes()));
    job.tensor.checksum = hasher.digest();
    return {};
  }

 private:
  Packer(const KernelSet& kernels, AlignedBuffer codes, AlignedBuffer scales, AlignedBuffer offsets,
         int threads)
      : kernels_(&kernels),
        codes_(std::move(codes)),
        scales_(std::move(scales)),
        offsets_(std::move(offsets)),
        pool_(std::make_unique<ThreadPool>(threads)) {}
  const KernelSet* kernels_;
  AlignedBuffer codes_;
  AlignedBuffer scales_;
  AlignedBuffer offsets_;
  std::unique_ptr<ThreadPool> pool_;
};

Status make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return fail(ErrorCode::runtime, fmt::format("{}: cannot be created: {}", folder, error.message()));
}

}  // namespace

Result<PrepackResult> prepack(const std::shared_ptr<const Package>& package,
                              std::span<const Graph* const> graphs, std::string_view target, int threads,
                              const ProgressCallback& progress) {
  if (std::find(prepack_targets.begin(), prepack_targets.end(), target) == prepack_targets.end()) {
    return fail(ErrorCode::usage, fmt::format("unknown prepack target \"{}\", expected one of {}", target,
                                              fmt::join(prepack_targets, ", ")));
  }
  HEXLM_ASSIGN(std::vector<Job> jobs, find_jobs(package, graphs));
  if (jobs.empty()) {
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: no matrix has integer weights in groups of a multiple of 32: nothing to prepack",
                    package->folder()));
  }
  const std::string folder = package->folder() + "/" + prepacked_folder;
  HEXLM_TRY(make_folder(folder));
  std::vector<TensorPlan> plans;
  uint64_t total = 0;
  for (const Job& job : jobs) {
    for (TensorPlan& plan : tensor_plans(job.tensor)) plans.push_back(std::move(plan));
    total += static_cast<uint64_t>(job.tensor.code_bytes);
  }
  HEXLM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(folder + "/" + prepacked_file, plans,
                                                                   {{"format", "hexlm"}}, package_alignment));
  HEXLM_ASSIGN(Packer packer, Packer::create(jobs, threads));
  uint64_t done = 0;
  for (Job& job : jobs) {
    HEXLM_TRY(packer.write(job, writer));
    done += static_cast<uint64_t>(job.tensor.code_bytes);
    if (interrupted() || (progress && !progress(job.tensor.name, done, total)))
      return fail(ErrorCode::interrupted, fmt::format("prepacking interrupted at '{}'", job.tensor.name));
  }
  HEXLM_TRY(writer.commit());
  PrepackedManifest manifest;
  manifest.layout = packed_layout;
  manifest.target = target;
  manifest.file = {prepacked_file, writer.file_bytes(), writer.header_checksum()};
  for (Job& job : jobs) manifest.tensors.push_back(std::move(job.tensor));
  HEXLM_TRY(write_file_atomically(folder + "/manifest.json", to_text(manifest)));
  return PrepackResult{manifest.layout, static_cast<int64_t>(manifest.tensors.size()), manifest.file.bytes};
}

}  // namespace hexlm
