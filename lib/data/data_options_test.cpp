// The keys of the data section.
#include "data/data_options.h"

#include <catch2/catch_test_macros.hpp>

using namespace longhaul;

namespace {
// Takes the rules that the section uses.
struct Rules {
  Rules& required() { return *this; }
  Rules& not_empty() { return *this; }
  Rules& non_negative() { return *this; }
};

struct KeyLister {
  std::vector<std::string> keys;
  template <class T>
  Rules field(const char* key, T&, const char* help) {
    CHECK(std::string(help).size() > 10);
    keys.emplace_back(key);
    return {};
  }
};
}  // namespace

TEST_CASE("the data section lists its keys once", "[data]") {
  KeyLister data;
  DataOptions options;
  describe(data, options);
  CHECK(data.keys == std::vector<std::string>{"train", "validation", "shuffle", "seed", "document_token"});
  KeyLister source;
  DataSourceOptions source_options;
  describe(source, source_options);
  CHECK(source.keys == std::vector<std::string>{"path", "weight"});
}
