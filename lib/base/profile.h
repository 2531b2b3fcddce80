// Where the processor time of this thread goes, by kind of work: for `bench --op step`. Operations of the CPU backend and
// layers open a ProfileScope; it costs one comparison unless a ProfileRecording lives on this thread.
//
// Scopes nest. A scope's seconds contain those of the scopes inside it, own_seconds do not.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace longhaul {

// Processor time of the calling thread: what other programs do on the machine does not count.
[[nodiscard]] double thread_seconds() noexcept;

class Profile {
 public:
  struct Entry {
    std::string_view name;  // a literal
    int64_t calls = 0;
    double seconds = 0;
    double own_seconds = 0;
  };
  // In the order of first use.
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  // Zeros when there was no such scope.
  [[nodiscard]] Entry find(std::string_view name) const noexcept;

 private:
  friend class ProfileScope;
  struct Open {
    size_t entry;
    double start;
    double inside = 0;  // seconds of the scopes within
  };
  void begin(std::string_view name);
  void end();

  std::vector<Entry> entries_;
  std::vector<Open> open_;
};

// While it lives, scopes of this thread count into `profile`. Recordings do not nest.
class ProfileRecording {
 public:
  explicit ProfileRecording(Profile& profile);
  ~ProfileRecording();
  ProfileRecording(const ProfileRecording&) = delete;
  ProfileRecording& operator=(const ProfileRecording&) = delete;
};

class ProfileScope {
 public:
  explicit ProfileScope(std::string_view name);
  ~ProfileScope();
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profile* profile_;
};

}  // namespace longhaul
