// Small token files for the tests of this folder.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "data/data_loader.h"
#include "data/token_writer.h"

namespace longhaul::testing {

using Documents = std::vector<std::vector<int32_t>>;

// A folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / fmt::format("longhaul_data_{}_{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  LH_CHECK(out.good(), "cannot write {}", path.string());
}

[[nodiscard]] inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

[[nodiscard]] inline std::string hex(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) {
    out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return out;
}

// The bytes of a number, little-endian.
template <class T>
[[nodiscard]] std::string bytes_of_value(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

inline void write_corpus(const std::filesystem::path& prefix, const Documents& documents, int64_t vocab_size = 60000) {
  TokenFileWriter writer(prefix, vocab_size);
  for (const auto& document : documents) {
    writer.add_document(document);
  }
  writer.finish();
}

// Documents of these lengths; every token of the corpus is another number, counted from `first`.
[[nodiscard]] inline Documents numbered_documents(const std::vector<int64_t>& lengths, int32_t first = 0) {
  Documents documents;
  for (const int64_t length : lengths) {
    documents.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      documents.back().push_back(first++);
    }
  }
  return documents;
}

[[nodiscard]] inline TokenFile open_corpus(const std::filesystem::path& prefix, int64_t vocab_size = 60000) {
  return TokenFile::open(prefix, {.vocab_size = vocab_size});
}

struct TestSource {
  std::filesystem::path prefix;
  double weight = 1.0;
};

[[nodiscard]] inline std::vector<DataSource> open_all(const std::vector<TestSource>& list) {
  std::vector<DataSource> sources;
  for (const TestSource& source : list) {
    sources.push_back({.file = open_corpus(source.prefix), .weight = source.weight});
  }
  return sources;
}

// The message of the exception of type E that `call` throws; empty when it throws none. Others pass through.
template <class E, class Call>
[[nodiscard]] std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

}  // namespace longhaul::testing
