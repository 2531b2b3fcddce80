// Feeds malformed files to everything that reads files of other programs or of an earlier run, and expects each time either
// success or the error of that kind of file: ConversionError (exit code 7) for released models, CheckpointError (5) for
// checkpoints. Anything else, a crash above all, ends the program with the number of the input; meant for a build with the
// address sanitizer (README.md).
//
//   fuzz_files [--target NAME] [--inputs N] [--first NUMBER]
#include <charconv>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string_view>

#include "checkpoint/manifest.h"
#include "convert/convert_test_support.h"
#include "convert/import_plan.h"
#include "convert/inspect.h"
#include "convert/verify.h"
#include "fuzz/mutate.h"
#include "storage/atomic_write.h"
#include "storage/hash.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;
using convert_test::text_of;

enum class Outcome : uint8_t { Accepted, Refused };

struct Target {
  std::string_view name;
  ErrorKind wanted;
  // Damages a copy of `good` at `path`; false when it came out as it was.
  std::function<bool(FuzzRandom&, const fs::path& good, const fs::path& path)> damage;
  // Reads it.
  std::function<void(const fs::path&)> read;
  std::function<void(const fs::path&)> make;
  enum class Accepting : uint8_t { Allowed, Wrong } accepting = Accepting::Allowed;  // what is different but can be read
};

void write_raw(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Changes a file in place.
bool damage_file(FuzzRandom& random, const fs::path& path, const std::function<int64_t(const std::string&)>& header_bytes) {
  const std::string good = text_of(path);
  std::string text = good;
  mutate(random, text, header_bytes(good));
  write_raw(path, text);
  return text != good;
}

int64_t whole_text(const std::string& text) { return static_cast<int64_t>(text.size()); }
int64_t hdf5_header_bytes(const std::string&) { return 4096; }

int64_t safetensors_header_bytes(const std::string& text) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data(), sizeof(bytes));
  return 8 + static_cast<int64_t>(bytes);
}

void copy_directory(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

// --- one safetensors file ---

void make_safetensors(const fs::path& path) {
  fs::create_directories(path);
  convert_test::FileTensors tensors;
  const auto add = [&](const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape, size_t bytes) {
    tensors[name] = {.dtype = dtype, .shape = shape, .data = std::vector<std::byte>(bytes, std::byte{0x3c})};
  };
  add("a", "F32", {2, 3}, 24);
  add("b", "BF16", {4}, 8);
  add("scalar", "F64", {}, 8);
  add("empty", "I32", {0, 5}, 0);
  add("bytes", "U8", {7}, 7);
  add("long", "I64", {2, 1, 2}, 32);
  convert_test::write_file(path / "model.safetensors", tensors);
}

void read_safetensors(const fs::path& path) {
  const SafetensorsFile file(path / "model.safetensors");
  int64_t sum = 0;
  for (const auto& [name, entry] : file.entries()) {
    for (const std::byte value : entry.data) {
      sum += static_cast<int64_t>(value);
    }
    try {
      sum += static_cast<int64_t>(file.read_as_f64(name).size());
    } catch (const ConversionError&) {  // a type that has no numbers
    }
  }
  volatile int64_t kept = sum;
  (void)kept;
}

// --- a released directory ---

void make_released(const fs::path& path) {
  const TemporaryDirectory work;
  const fs::path made = convert_test::released_directory(work.path(), convert_test::tiny_k3(),
                                                         {.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4});
  fs::copy(made, path, fs::copy_options::recursive);
  const SafetensorsFile file(path / "model.safetensors");
  std::string map;
  for (const std::string& name : file.names()) {
    map += fmt::format("{}\"{}\": \"model.safetensors\"", map.empty() ? "" : ", ", name);
  }
  write_raw(path / "model.safetensors.index.json", fmt::format("{{\"metadata\": {{\"total_size\": 0}}, \"weight_map\": {{{}}}}}", map));
}

bool damage_released(FuzzRandom& random, const fs::path& good, const fs::path& path) {
  copy_directory(good, path);
  if (draw(random, 2) == 0) {
    return damage_file(random, path / "model.safetensors", safetensors_header_bytes);
  }
  return damage_file(random, path / (draw(random, 3) == 0 ? "model.safetensors.index.json" : "config.json"), whole_text);
}

void read_released(const fs::path& path) {
  (void)inspect(path, InspectFormat::Text);
  const ReleasedDirectory directory(path);
  const ImportPlan plan(directory);
  std::vector<float> values(64);
  for (const FilledTensor& tensor : plan.tensors()) {
    const auto count = std::min<int64_t>(tensor.target.shape.numel(), 64);
    tensor.read<float>(0, std::span(values.data(), static_cast<size_t>(count)));
  }
}

// --- checkpoints: HDF5 files and their manifest ---

void make_checkpoint(const fs::path& path) { convert_test::write_random_checkpoint(path, convert_test::tiny_k3(), 3); }

void make_compressed(const fs::path& path) { convert_test::write_random_checkpoint(path, convert_test::tiny_k3(), 3, Compression::Zstd); }

const char* any_file(FuzzRandom& random) { return draw(random, 2) == 0 ? "rank_00000.h5" : "index.h5"; }

bool damage_checkpoint(FuzzRandom& random, const fs::path& good, const fs::path& path) {
  copy_directory(good, path);
  const bool is_manifest = draw(random, 4) == 0;
  return is_manifest ? damage_file(random, path / kManifestName, whole_text)
                     : damage_file(random, path / any_file(random), hdf5_header_bytes);
}

// The hash in a manifest made right again, so that its content is looked at.
void seal(const fs::path& path, std::string text) {
  constexpr size_t kAt = 21;  // behind {\n "manifest_xxh3": "
  if (text.size() >= kAt + 16) {
    text.replace(kAt, 16, std::string(16, '0'));
    text.replace(kAt, 16, hash_to_text(hash_text(text)));
  }
  write_raw(path / kManifestName, text);
}

bool damage_sealed_manifest(FuzzRandom& random, const fs::path& good, const fs::path& path) {
  copy_directory(good, path);
  const bool is_changed = damage_file(random, path / kManifestName, whole_text);
  seal(path, text_of(path / kManifestName));
  return is_changed;
}

// HDF5 files whose hashes agree with the manifest: what an attacker would write.
bool damage_sealed_file(FuzzRandom& random, const fs::path& good, const fs::path& path) {
  copy_directory(good, path);
  const fs::path file = path / any_file(random);
  const FileHash before = hash_file(file, ErrorKind::Checkpoint);
  const bool is_changed = damage_file(random, file, hdf5_header_bytes);
  const FileHash after = hash_file(file, ErrorKind::Checkpoint);
  std::string text = text_of(path / kManifestName);
  const auto put = [&](const std::string& from, const std::string& to) {
    if (const size_t at = text.find(from); at != std::string::npos) {
      text.replace(at, from.size(), to);
    }
  };
  put(hash_to_text(before.hash), hash_to_text(after.hash));
  put(fmt::format("\"bytes\": {}", before.bytes), fmt::format("\"bytes\": {}", after.bytes));
  seal(path, std::move(text));
  return is_changed;
}

void read_checkpoint(const fs::path& path) {
  (void)inspect(path, InspectFormat::Json);
  SelfHostComm comm;
  CheckpointReader reader(path);
  verify_checkpoint(comm, reader);
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (tensor.spec.shape.numel() > 1 << 20) {
      continue;
    }
    const Tensor values(tensor.spec);
    reader.read(name, std::vector<int64_t>(static_cast<size_t>(tensor.spec.shape.rank()), 0), values);
  }
}

std::vector<Target> targets() {
  const auto damage_safetensors = [](FuzzRandom& random, const fs::path& good, const fs::path& path) {
    copy_directory(good, path);
    return damage_file(random, path / "model.safetensors", safetensors_header_bytes);
  };
  using Accepting = Target::Accepting;
  return {{"safetensors", ErrorKind::Conversion, damage_safetensors, read_safetensors, make_safetensors},
          {"released", ErrorKind::Conversion, damage_released, read_released, make_released},
          {"checkpoint", ErrorKind::Checkpoint, damage_checkpoint, read_checkpoint, make_checkpoint, Accepting::Wrong},
          {"sealed_manifest", ErrorKind::Checkpoint, damage_sealed_manifest, read_checkpoint, make_checkpoint},
          {"sealed_file", ErrorKind::Checkpoint, damage_sealed_file, read_checkpoint, make_checkpoint},
          {"compressed", ErrorKind::Checkpoint, damage_checkpoint, read_checkpoint, make_compressed, Accepting::Wrong},
          {"compressed_manifest", ErrorKind::Checkpoint, damage_sealed_manifest, read_checkpoint, make_compressed},
          {"compressed_file", ErrorKind::Checkpoint, damage_sealed_file, read_checkpoint, make_compressed}};
}

// What reading did; throws what must not happen.
Outcome outcome_of(const Target& target, const fs::path& path) {
  try {
    target.read(path);
    return Outcome::Accepted;
  } catch (const Error& error) {
    if (error.kind() != target.wanted || std::string_view(error.what()).empty()) {
      throw;
    }
    return Outcome::Refused;
  }
}

struct Options {
  std::optional<std::string> target;
  int64_t inputs = 1000;
  int64_t first = 0;
};

int fuzz(const Target& target, const Options& options) {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  target.make(folder.path() / "good");
  target.read(folder.path() / "good");
  int64_t refused = 0;
  int64_t accepted = 0;
  for (int64_t number = options.first; number < options.first + options.inputs; ++number) {
    FuzzRandom random(static_cast<uint64_t>(number));
    const fs::path path = folder.path() / "damaged";
    const bool is_changed = target.damage(random, folder.path() / "good", path);
    try {
      const Outcome outcome = outcome_of(target, path);
      LH_CHECK(is_changed || outcome == Outcome::Accepted, "nothing is wrong with it, but it was refused");
      LH_CHECK(!is_changed || outcome == Outcome::Refused || target.accepting == Target::Accepting::Allowed, "the damage was not noticed");
      refused += outcome == Outcome::Refused ? 1 : 0;
      accepted += is_changed && outcome == Outcome::Accepted ? 1 : 0;
    } catch (const std::exception& error) {
      const std::string kept = fmt::format("fuzz_{}_{}", target.name, number);
      copy_directory(path, kept);
      std::cerr << fmt::format("target {}, input {}, kept in {}: {}\n", target.name, number, kept, error.what());
      return 1;
    }
  }
  std::cout << fmt::format("{}: {} inputs, {} refused with a message, {} read although different, {} as they were\n", target.name,
                           options.inputs, refused, accepted, options.inputs - refused - accepted);
  return 0;
}

int64_t number_from(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError("\"{}\" is not a number", text);
  }
  return value;
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag(argv[i]);
    if (flag == "--target") {
      options.target = argv[i + 1];
    } else if (flag == "--inputs") {
      options.inputs = number_from(argv[i + 1]);
    } else if (flag == "--first") {
      options.first = number_from(argv[i + 1]);
    } else {
      throw UsageError("unknown flag {}; known are --target, --inputs and --first", flag);
    }
  }
  int code = 0;
  for (const Target& target : targets()) {
    if (!options.target || *options.target == target.name) {
      code = std::max(code, fuzz(target, options));
    }
  }
  return code;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  try {
    return longhaul::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
