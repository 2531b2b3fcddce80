// See load.h.
#include "checkpoint/load.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "checkpoint/together.h"

namespace longhaul {

namespace {

constexpr size_t kMaxListed = 10;  // more names than this in an error hide what it says

std::string list_text(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMaxListed); ++i) {
    text += (i == 0 ? "" : ", ") + lines[i];
  }
  return lines.size() <= kMaxListed ? text : fmt::format("{} and {} more", text, lines.size() - kMaxListed);
}

// The names that any rank asks for.
std::set<std::string> names_asked_for(HostComm& comm, const LoadRequest& request) {
  std::string mine;
  for (const Piece& piece : request.pieces) {
    mine += piece.name + "\n";
  }
  std::set<std::string> names;
  for (const std::string& text : comm.all_gather_strings(mine)) {
    std::istringstream lines(text);
    for (std::string name; std::getline(lines, name);) {
      names.insert(name);
    }
  }
  return names;
}

void compare_names(const CheckpointReader& reader, const std::set<std::string>& asked, const std::vector<std::string>& prefixes) {
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  for (const std::string& name : asked) {
    if (!reader.manifest().tensors.contains(name)) {
      missing.push_back(name);
    }
  }
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    const bool is_covered = std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
    if (is_covered && !asked.contains(name)) {
      extra.push_back(name);
    }
  }
  if (missing.empty() && extra.empty()) {
    return;
  }
  throw CheckpointError("{} does not hold the tensors of this run; {}{}{}; is it of the same model and optimizer?",
                        reader.path().string(), missing.empty() ? "" : "missing: " + list_text(missing),
                        !missing.empty() && !extra.empty() ? "; " : "", extra.empty() ? "" : "not in this run: " + list_text(extra));
}

void compare_specs(const CheckpointReader& reader, const LoadRequest& request) {
  std::vector<std::string> different;
  for (const Piece& piece : request.pieces) {
    const TensorSpec& stored = reader.manifest().tensors.at(piece.name).spec;
    const TensorSpec wanted{.dtype = piece.data.dtype(), .shape = piece.global_shape};
    if (stored != wanted) {
      different.push_back(fmt::format("\"{}\" is {}{}, wanted {}{}", piece.name, to_string(stored.dtype), stored.shape.to_string(),
                                      to_string(wanted.dtype), wanted.shape.to_string()));
    }
  }
  if (!different.empty()) {
    throw CheckpointError("{} has other types or shapes than this run: {}", reader.path().string(), list_text(different));
  }
}

}  // namespace

std::optional<FoundCheckpoint> find_latest_together(HostComm& comm, const std::filesystem::path& run_directory,
                                                    const std::function<void(const std::string&)>& skipped,
                                                    const RequiredDocuments& required) {
  std::optional<FoundCheckpoint> found;
  run_together(comm, fmt::format("looking for checkpoints in {}", run_directory.string()), [&] {
    if (comm.rank() == 0) {
      found = find_latest(run_directory, skipped, required);
    }
  });
  std::string path = found ? found->path.string() : "";
  int64_t step = found ? found->step : -1;
  comm.broadcast_string(path, 0);
  comm.broadcast_value(step, 0);
  return step < 0 ? std::nullopt : std::optional(FoundCheckpoint{.step = step, .path = path});
}

CheckpointReader open_checkpoint(HostComm& comm, const std::filesystem::path& directory, const DeviceTransfer& copy) {
  std::optional<CheckpointReader> reader;
  run_together(comm, fmt::format("opening the checkpoint {}", directory.string()), [&] { reader.emplace(directory, copy); });
  verify_checkpoint(comm, *reader);
  return *std::move(reader);
}

void verify_checkpoint(HostComm& comm, const CheckpointReader& reader) {
  run_together(comm, fmt::format("verifying the checkpoint {}", reader.path().string()), [&] {
    std::vector<std::string> problems;
    int64_t number = 0;
    for (const auto& [name, file] : reader.manifest().files) {
      if (number++ % comm.size() == comm.rank()) {
        const std::vector<std::string> found = reader.damage(name);
        problems.insert(problems.end(), found.begin(), found.end());
      }
    }
    if (!problems.empty()) {
      throw CheckpointError("{}", list_text(problems));
    }
  });
}

void load_tensors(HostComm& comm, CheckpointReader& reader, const LoadRequest& request) {
  const std::set<std::string> asked = names_asked_for(comm, request);
  const std::string action = fmt::format("loading the checkpoint {}", reader.path().string());
  run_together(comm, action, [&] {
    compare_names(reader, asked, request.prefixes);
    compare_specs(reader, request);
  });
  run_together(comm, action, [&] {
    for (const Piece& piece : request.pieces) {
      reader.read(piece.name, piece.offset, piece.data);
    }
  });
}

}  // namespace longhaul
