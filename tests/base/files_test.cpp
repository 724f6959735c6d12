#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/stale_files.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// Limits the size of files this process may write: the portable twin of a full disk (EFBIG for ENOSPC).
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit = {bytes, former_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit former_ = {};
  void (*handler_)(int);
};

TEST(AtomicFile, AppearsOnlyWithTheCommit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.bin");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->write(std::string_view("hello ")));
  ASSERT_TRUE(file->write(std::string_view("world")));
  EXPECT_EQ(file->written(), 11U);
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(read_test_file(path), "hello world");
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_FALSE(file->commit());
  EXPECT_FALSE(file->write(std::string_view("more")));
}

TEST(AtomicFile, WithoutCommitTheFormerFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.bin");
  write_test_file(path, "former");
  {
    auto file = AtomicFile::create(path);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::string_view("half")));
    AtomicFile moved = std::move(*file);
    EXPECT_EQ(folder.entries(), 2U);
  }
  EXPECT_EQ(read_test_file(path), "former");
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(AtomicFile, TwoWritersOfOnePathDoNotMix) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.bin");
  auto first = AtomicFile::create(path);
  auto second = AtomicFile::create(path);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  ASSERT_TRUE(first->write(std::string_view("first")));
  ASSERT_TRUE(second->write(std::string_view("second")));
  ASSERT_TRUE(second->commit());
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(read_test_file(path), "first");
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(AtomicFile, AFullDiskIsALimitAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.bin");
  const FileSizeLimit limit(100'000);
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file);
  const std::string block(60'000, 'x');
  ASSERT_TRUE(file->write(block));
  const Status status = file->write(block);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::limit);
  EXPECT_THAT(status.error().message, HasSubstr(path));
  EXPECT_THAT(status.error().message, HasSubstr("after 100000 bytes"));
  EXPECT_EQ(folder.entries(), 0U);
  EXPECT_FALSE(file->commit());
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(AtomicFile, RefusesAFolderAndAMissingParent) {
  const TemporaryFolder folder;
  const auto over_folder = AtomicFile::create(folder.path());
  ASSERT_FALSE(over_folder);
  EXPECT_EQ(over_folder.error().code, ErrorCode::runtime);
  const auto without_parent = AtomicFile::create(folder.file("missing/out.bin"));
  ASSERT_FALSE(without_parent);
  EXPECT_THAT(without_parent.error().message, HasSubstr("missing/out.bin"));
}

TEST(AtomicFolder, AppearsOnlyWithTheCommit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("package");
  auto output = AtomicFolder::create(path + "/", false, "marker");
  ASSERT_TRUE(output) << output.error().message;
  write_test_file(output->working_path() + "/a", "content");
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(output->commit());
  EXPECT_EQ(read_test_file(path + "/a"), "content");
  EXPECT_EQ(folder.entries(), 1U);
  EXPECT_FALSE(output->commit());
}

TEST(AtomicFolder, WithoutCommitNothingIsLeft) {
  const TemporaryFolder folder;
  {
    auto output = AtomicFolder::create(folder.file("package"), false, "marker");
    ASSERT_TRUE(output);
    write_test_file(output->working_path() + "/a", "content");
    EXPECT_EQ(folder.entries(), 1U);
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(AtomicFolder, ReplacesOnlyWhenAsked) {
  const TemporaryFolder folder;
  const std::string path = folder.file("package");
  std::filesystem::create_directory(path);
  write_test_file(path + "/old", "old");
  write_test_file(path + "/marker", "");
  const auto refused = AtomicFolder::create(path, false, "marker");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_THAT(refused.error().message, HasSubstr(path));
  auto output = AtomicFolder::create(path, true, "marker");
  ASSERT_TRUE(output);
  write_test_file(output->working_path() + "/new", "new");
  EXPECT_TRUE(std::filesystem::exists(path + "/old"));
  ASSERT_TRUE(output->commit());
  EXPECT_TRUE(std::filesystem::exists(path + "/new"));
  EXPECT_FALSE(std::filesystem::exists(path + "/old"));
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(AtomicFolder, NeverReplacesAFileNorANamelessFolder) {
  const TemporaryFolder folder;
  write_test_file(folder.file("file"), "keep");
  for (const std::string& path :
       {folder.file("file"), folder.file("."), folder.file(".."), std::string("/"), std::string()}) {
    const auto refused = AtomicFolder::create(path, true, "marker");
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().code, ErrorCode::usage) << path;
  }
  EXPECT_EQ(read_test_file(folder.file("file")), "keep");
}

TEST(AtomicFolder, ReplacesOnlyAFolderThatIsMarked) {
  const TemporaryFolder folder;
  const std::string path = folder.file("home");
  std::filesystem::create_directory(path);
  write_test_file(path + "/letter", "keep");
  const auto refused = AtomicFolder::create(path, true, "marker");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_EQ(read_test_file(path + "/letter"), "keep");
  std::filesystem::remove(path + "/letter");
  EXPECT_TRUE(AtomicFolder::create(path, true, "marker"));
}

TEST(AtomicFile, NeverWritesOverASpecialFile) {
  const auto refused = AtomicFile::create("/dev/null");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
}

TEST(AtomicFolder, AFolderThatAppearedMeanwhileIsKept) {
  const TemporaryFolder folder;
  const std::string path = folder.file("package");
  {
    auto output = AtomicFolder::create(path, false, "marker");
    ASSERT_TRUE(output);
    std::filesystem::create_directory(path);
    EXPECT_FALSE(output->commit());
  }
  EXPECT_TRUE(std::filesystem::is_empty(path));
  EXPECT_EQ(folder.entries(), 1U);
}

/// The number of a process that has ended.
pid_t gone_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return child;
}

TEST(StaleFiles, OfKilledProcessesAreRemovedByTheNextWriter) {
  const TemporaryFolder folder;
  const std::string target = folder.file("package");
  const std::string gone = std::to_string(gone_process());
  const std::vector<std::string> stale = {target + ".tmp-" + gone, target + ".tmp-" + gone + "-1"};
  const std::vector<std::string> kept = {target + ".tmp-1",  // always alive
                                         target + ".tmp-" + std::to_string(::getpid()),
                                         target + ".tmp-" + gone + "-x",
                                         target + ".tmp-x",
                                         target + ".old-" + gone,  // the only copy: the target is not there
                                         folder.file("other.tmp-" + gone),
                                         folder.file("package2.tmp-" + gone)};
  for (const auto& names : {stale, kept}) {
    for (const std::string& name : names) {
      std::filesystem::create_directory(name);
      write_test_file(name + "/weights.safetensors", "half");
    }
  }
  const std::string link = target + ".tmp-" + gone + "-2";
  std::filesystem::create_symlink(kept[0], link);
  {
    auto output = AtomicFolder::create(target, false, "marker");
    ASSERT_TRUE(output) << output.error().message;
    for (const std::string& name : stale) EXPECT_FALSE(std::filesystem::exists(name)) << name;
    for (const std::string& name : kept)
      EXPECT_TRUE(std::filesystem::exists(name + "/weights.safetensors")) << name;
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    write_test_file(output->working_path() + "/marker", "");
    ASSERT_TRUE(output->commit());
  }
  // With the target there, what was moved aside is garbage.
  EXPECT_TRUE(AtomicFolder::create(target, true, "marker"));
  EXPECT_FALSE(std::filesystem::exists(kept[4]));
  EXPECT_TRUE(std::filesystem::exists(kept[0]));
}

TEST(StaleFiles, ThatAreMarkedStay) {
  // As a writer in another container, whose process number means nothing here.
  const TemporaryFolder folder;
  const std::string target = folder.file("file");
  const std::string stale = target + ".tmp-" + std::to_string(gone_process());
  write_test_file(stale, "half");
  {
    const FileDescriptor mark = mark_in_use(stale);
    ASSERT_TRUE(mark.valid());
    EXPECT_TRUE(write_file_atomically(target, "new"));
    EXPECT_TRUE(std::filesystem::exists(stale));
  }
  EXPECT_TRUE(write_file_atomically(target, "newer"));
  EXPECT_FALSE(std::filesystem::exists(stale));
}

TEST(ReadFile, ReadsWholeFilesUpToTheLimit) {
  const TemporaryFolder folder;
  const std::string path = folder.file("in");
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{100'001}}) {
    const std::string content(size, 'y');
    write_test_file(path, content);
    const auto read = read_file(path, size);
    ASSERT_TRUE(read) << size;
    EXPECT_EQ(*read, content);
  }
  const auto over = read_file(path, 100'000);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::limit);
  EXPECT_THAT(over.error().message, HasSubstr("100001"));
  EXPECT_THAT(over.error().message, HasSubstr("100000"));
}

TEST(ReadFile, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path :
       {folder.file("missing"), folder.path(), folder.file("pipe"), std::string("/dev/zero")}) {
    const auto read = read_file(path);
    ASSERT_FALSE(read) << path;
    EXPECT_EQ(read.error().code, ErrorCode::bad_input);
    EXPECT_THAT(read.error().message, HasSubstr(path));
    const auto mapped = MappedFile::open(path);
    ASSERT_FALSE(mapped) << path;
    EXPECT_EQ(mapped.error().code, ErrorCode::bad_input);
    EXPECT_THAT(mapped.error().message, HasSubstr(path));
  }
}

TEST(MappedFile, MapsAndReleases) {
  const TemporaryFolder folder;
  const std::string path = folder.file("in");
  std::string content(1'000'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 % 251);
  write_test_file(path, content);
  auto opened = MappedFile::open(path);
  ASSERT_TRUE(opened);
  const MappedFile mapped = std::move(*opened);
  const auto as_text = [&] {
    return std::string_view(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  };
  ASSERT_EQ(as_text(), content);
  mapped.will_need(mapped.bytes().subspan(5, 100'000));
  mapped.release(mapped.bytes().subspan(5, 100'000));
  mapped.release(mapped.bytes());
  mapped.release(mapped.bytes().subspan(3, 0));
  EXPECT_EQ(as_text(), content);
}

/// Resident bytes of file-backed pages of this process.
int64_t resident_file_bytes() {
  const auto status = read_file("/proc/self/status");
  if (!status) return -1;
  const size_t position = status->find("RssFile:");
  return position == std::string::npos ? -1 : std::stoll(status->substr(position + 8)) * 1024;
}

TEST(MappedFile, ReleaseBoundsTheResidentSet) {
  const TemporaryFolder folder;
  const std::string path = folder.file("in");
  constexpr size_t size = size_t{64} << 20;
  write_test_file(path, std::string(size, 'z'));
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped);
  const int64_t before = resident_file_bytes();
  ASSERT_GE(before, 0);
  constexpr size_t piece = size_t{4} << 20;
  int64_t peak = 0;
  size_t sum = 0;
  for (size_t offset = 0; offset < size; offset += piece) {
    const auto range = mapped->bytes().subspan(offset, piece);
    for (const std::byte value : range) sum += static_cast<size_t>(value);
    peak = std::max(peak, resident_file_bytes() - before);
    mapped->release(range);
  }
  EXPECT_EQ(sum, size * 'z');
  EXPECT_GE(peak, int64_t{piece} / 2);
  EXPECT_LT(peak, int64_t{3} * piece);
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const TemporaryFolder folder;
  write_test_file(folder.file("empty"), "");
  const auto mapped = MappedFile::open(folder.file("empty"));
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(mapped->bytes().empty());
  mapped->release(mapped->bytes());
}

}  // namespace
}  // namespace hexlm
