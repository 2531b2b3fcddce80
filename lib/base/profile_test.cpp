// Scopes count calls and nest; nothing is recorded without a recording.
#include "base/profile.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "base/error.h"

namespace longhaul {
namespace {

// Uses processor time.
void work() {
  const double end = thread_seconds() + 2e-3;
  while (thread_seconds() < end) {
  }
}

void layer() {
  const ProfileScope scope("layer");
  work();
  for (int i = 0; i < 2; ++i) {
    const ProfileScope operation("operation");
    work();
  }
}

TEST_CASE("a scope contains the scopes inside it, its own time does not", "[base]") {
  Profile profile;
  {
    const ProfileRecording recording(profile);
    layer();
  }
  layer();  // not recorded
  const Profile::Entry outer = profile.find("layer");
  const Profile::Entry inner = profile.find("operation");
  CHECK(outer.calls == 1);
  CHECK(inner.calls == 2);
  CHECK(inner.seconds >= 4e-3);
  CHECK(inner.own_seconds == inner.seconds);
  CHECK(outer.own_seconds >= 2e-3);
  CHECK(outer.seconds == Catch::Approx(outer.own_seconds + inner.seconds));
  CHECK(profile.entries().size() == 2);
  CHECK(profile.find("unknown").calls == 0);
}

TEST_CASE("one recording at a time", "[base]") {
  Profile profile;
  const ProfileRecording recording(profile);
  CHECK_THROWS_AS(ProfileRecording(profile), UsageError);
}

}  // namespace
}  // namespace longhaul
