// See token_writer.h.
#include "data/token_writer.h"

#include <limits>

#include "base/cast.h"
#include "base/error.h"
#include "data/megatron_format.h"

namespace longhaul {

namespace {

// Megatron's limit, which leaves room for padding a vocabulary below 2^16.
constexpr int64_t kU16VocabLimit = 65500;

// Makes the folder of the file to be written, then returns the file's path.
[[nodiscard]] std::filesystem::path in_made_folder(std::filesystem::path path) {
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    if (failure) {
      throw DataError("cannot make the folder {}: {}", path.parent_path().string(), failure.message());
    }
  }
  return path;
}

template <class T>
void put(AtomicFile& file, T value) {
  file.write(std::as_bytes(std::span(&value, 1)));
}

}  // namespace

std::filesystem::path bin_path(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += ".bin"; }
std::filesystem::path idx_path(const std::filesystem::path& prefix) { return std::filesystem::path(prefix) += ".idx"; }

TokenFileWriter::TokenFileWriter(const std::filesystem::path& prefix, int64_t vocab_size)
    : bin_(in_made_folder(bin_path(prefix))),
      idx_(idx_path(prefix)),
      vocab_size_(vocab_size),
      type_(vocab_size < kU16VocabLimit ? TokenType::U16 : TokenType::I32) {
  LH_CHECK(vocab_size > 0 && vocab_size <= std::numeric_limits<int32_t>::max(), "a vocabulary of {} tokens", vocab_size);
}

void TokenFileWriter::add_document(std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  if (length > std::numeric_limits<int32_t>::max()) {
    throw DataError("document {} of {} has {} tokens; the format holds at most 2^31 - 1 a document, so cut it", num_documents(),
                    bin_.path().string(), length);
  }
  dispatch_token_type(type_, [&]<class T>(T) {
    std::vector<T> stored(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocab_size_) {
        throw DataError("document {} of {} has the token {} at position {}, outside the vocabulary of {}", num_documents(),
                        bin_.path().string(), tokens[i], i, vocab_size_);
      }
      stored[i] = static_cast<T>(tokens[i]);
    }
    bin_.write(std::as_bytes(std::span<const T>(stored)));
  });
  lengths_.push_back(static_cast<int32_t>(length));
  num_tokens_ += length;
}

void TokenFileWriter::finish() {
  idx_.write(std::as_bytes(std::span(kMegatronMagic)));
  put(idx_, kMegatronVersion);
  put(idx_, static_cast<uint8_t>(type_));
  put(idx_, static_cast<uint64_t>(lengths_.size()));
  put(idx_, static_cast<uint64_t>(lengths_.size() + 1));
  idx_.write(std::as_bytes(std::span<const int32_t>(lengths_)));
  int64_t pointer = 0;
  for (const int32_t length : lengths_) {
    put(idx_, pointer);
    pointer += length * bytes_of(type_);
  }
  for (int64_t boundary = 0; boundary <= num_documents(); ++boundary) {
    put(idx_, boundary);
  }
  bin_.sync();
  idx_.sync();
  // An old index must not stand beside a new .bin, not even for a moment.
  std::error_code ignored;
  std::filesystem::remove(idx_.path(), ignored);
  bin_.publish();
  idx_.publish();
}

}  // namespace longhaul
