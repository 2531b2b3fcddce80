// The parser: positions, and that nothing which yaml-cpp lets pass silently gets through.
#include "config/parse.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/document.h"

using namespace longhaul;
using namespace longhaul::config;

namespace {

// The message of the error, or "no error".
std::string error_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  try {
    const auto doc = Document::from_string(text, overrides);
    Diagnostics diagnostics;
    for (const Problem& problem : doc.problems()) {
      diagnostics.add(problem);
    }
    diagnostics.throw_if_any();
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a tree keeps order, quotes and positions", "[config]") {
  const auto doc = Document::from_string("run: {näme: \"é\", dir: x}   # note\nstages:\n  - name: 8k\n    steps: 5\n  - steps: 6\n");
  CHECK(emit(doc.root()) == "run:\n  \"näme\": \"é\"\n  dir: x\nstages:\n  - name: 8k\n    steps: 5\n  - steps: 6\n");
  const auto place = [&](std::string_view key) {
    const Position position = doc.source_map().nearest(key);
    return fmt::format("{}:{}", position.line, position.column);
  };
  CHECK(place("") == "1:1");
  CHECK(place("run") == "1:1");
  CHECK(place("run.näme") == "1:7");
  CHECK(place("run.dir") == "1:18");  // in characters, not in bytes
  CHECK(place("stages.0") == "3:5");
  CHECK(place("stages.0.steps") == "4:5");
  CHECK(place("stages.1.steps") == "5:5");
  CHECK(place("stages.1.name.deeper") == "5:5");  // nearest parent that was written
  CHECK(doc.given("stages.0.steps"));
  CHECK_FALSE(doc.given("stages.1.name"));
  CHECK_FALSE(doc.given("stages.2"));
  CHECK(doc.find("stages.1.steps")->text == "6");
  CHECK(doc.find("stages.7") == nullptr);
  CHECK(doc.find("run.dir.x") == nullptr);
  CHECK(doc.find("run..dir") == nullptr);
}

TEST_CASE("line ends, byte order mark, JSON and comments are read", "[config]") {
  CHECK(error_of("a: 1\r\nb: 2\r\n") == "no error");
  CHECK(error_of("\xef\xbb\xbf" "a: 1\n") == "no error");
  CHECK(error_of("{\"a\": 1, \"b\": [true, null]}") == "no error");
  CHECK(error_of("---\na: 1\n...\n") == "no error");
  CHECK(error_of("a: 'it''s'\nb: \"x\\\"y\"\nc: |\n  'open\n") == "no error");
  CHECK(error_of("a: {b: 1,\n\tc: 2}\n") == "no error");  // a tab between tokens is harmless
}

TEST_CASE("broken YAML names file, line, column and reason", "[config]") {
  CHECK(error_of("run:\n  name: x\n\tseed: 5\n") == "recipe.yaml:3:1: a tab is used for indentation; YAML allows only spaces");
  CHECK(error_of("run:\n\tname: x\n") == "recipe.yaml:2:1: a tab is used for indentation; YAML allows only spaces");
  CHECK(error_of("run:\n\t- x\n") == "recipe.yaml:2:1: a tab is used for indentation; YAML allows only spaces");
  CHECK(error_of("a: b: c\n") == "recipe.yaml:1:5: unexpected ':'; check the indentation, and quote text that holds ': '");
  CHECK(error_of("a:\n  b: 1\n c: 2\n") == "recipe.yaml:3:2: unexpected text; check the indentation and the quotes");
  CHECK(error_of("a: [1, 2\n") == "recipe.yaml:2:1: '[' is not closed by ']', or a ',' is missing");
  CHECK(error_of("a: {b: 1\n") == "recipe.yaml:2:1: '{' is not closed by '}', or a ',' is missing");
  CHECK(error_of("a: 1\n}\n") == "recipe.yaml:2:1: a closing bracket without an opening one");
  CHECK(error_of("a: @x\n") == "recipe.yaml:1:4: text cannot start with this character; put it in quotes");
  CHECK(error_of("a: - b\n").starts_with("recipe.yaml:1:4: a list entry ('- ') cannot stand here"));
  CHECK(error_of("a: \"x\\q\"\n") == "recipe.yaml:1:8: unknown escape character: q");
}

TEST_CASE("what yaml-cpp accepts silently is refused", "[config]") {
  CHECK(error_of("a: 1\nb: \"x\n\n\nc: 5\n") == "recipe.yaml:2:4: the quote that starts here is never closed");
  CHECK(error_of("a: \"x") == "recipe.yaml:1:6: a quote is never closed");
  CHECK(error_of("a: 'x''\n") == "recipe.yaml:1:4: the quote that starts here is never closed");
  CHECK(error_of("  a: 1\nb: 2\n").starts_with("recipe.yaml:2:1: unexpected content after the end of the document"));
  CHECK(error_of("a: 1\n---\nb: 2\n").starts_with("recipe.yaml:2:1: unexpected content after the end of the document"));
  CHECK(error_of("a: {b: 1}\na: 2\n") == "recipe.yaml:2:1: a: duplicate key; it was first given on line 1");
  CHECK(error_of("s:\n  - {a: 1, a: 2}\n") == "recipe.yaml:2:12: s.0.a: duplicate key; it was first given on line 2");
  CHECK(error_of("a: 1\na: 2\na: 3\n") ==
        "recipe.yaml:2:1: a: duplicate key; it was first given on line 1\n"
        "recipe.yaml:3:1: a: duplicate key; it was first given on line 1");
}

TEST_CASE("features of YAML without a place in a recipe are refused, all in one pass", "[config]") {
  CHECK(error_of("a: &x {b: 1}\nc: *x\nd: !!int 5\ne:\n  <<: {f: 1}\n") ==
        "recipe.yaml:1:1: a: anchors and aliases (& and *) are not supported; write the values out\n"
        "recipe.yaml:2:1: c: anchors and aliases (& and *) are not supported; write the values out\n"
        "recipe.yaml:3:1: d: tags (!) are not supported; the type of a key is known\n"
        "recipe.yaml:5:3: e.<<: merge keys (<<) are not supported; write the keys out");
  CHECK(error_of("a: *x\n") == "recipe.yaml:1:4: anchors and aliases (& and *) are not supported; write the values out");
  CHECK(error_of("? [1, 2]\n: 5\n") == "recipe.yaml:1:3: ?: a key must be a word");
  CHECK(error_of("~: 5\n") == "recipe.yaml:1:1: ?: a key must be a word");
  CHECK(error_of("&x a: 5\n") == "recipe.yaml:1:1: ?: anchors and aliases (& and *) are not supported; write the values out");
}

TEST_CASE("files that are no recipe are refused with a reason", "[config]") {
  CHECK(error_of("") == "recipe.yaml:1:1: the file holds no keys");
  CHECK(error_of("# only a comment\n") == "recipe.yaml:1:1: the file holds no keys");
  CHECK(error_of("---\n") == "recipe.yaml:1:1: the file holds no keys");
  CHECK(error_of("", {"a=1"}) == "recipe.yaml:1:1: the file holds no keys");
  CHECK(error_of("\n- a\n- b\n") == "recipe.yaml:2:1: the file must hold sections of keys ('key: value'), got a list");
  CHECK(error_of("a:1\n") == "recipe.yaml:1:1: the file must hold sections of keys ('key: value'), got a:1");
  CHECK(error_of("&x {a: 1}\n").starts_with("recipe.yaml:1:1: "));
  CHECK(error_of("a: 1\nb: \xff\n") == "recipe.yaml:2:4: the byte 0xff is not UTF-8; save the recipe as UTF-8 text");
  CHECK(error_of("a: \xed\xa0\x80\n").starts_with("recipe.yaml:1:4: the byte 0xed is not UTF-8"));  // a surrogate
  CHECK(error_of("a: \xc0\xaf\n").starts_with("recipe.yaml:1:4: the byte 0xc0 is not UTF-8"));      // an overlong form
  CHECK(error_of("a: \xe2\x82").starts_with("recipe.yaml:1:4: the byte 0xe2 is not UTF-8"));        // cut off
  CHECK(error_of("\xff\xfe" "a").starts_with("recipe.yaml:1:1: the byte 0xff is not UTF-8"));       // UTF-16
  CHECK(error_of(std::string_view("a: \0\n", 5)) ==
        "recipe.yaml:1:4: the control character 0x00 is not allowed; a recipe is UTF-8 text");
}

TEST_CASE("huge and deep files end with a clear error", "[config]") {
  CHECK(error_of(std::string(static_cast<std::size_t>(kMaxRecipeBytes) + 1, 'a')) ==
        "recipe.yaml:1:1: the file is larger than 1 MiB, which no recipe is");
  const std::string deep = "values are nested more than 64 levels deep";
  CHECK(error_of("a: " + std::string(200'000, '[')).ends_with(deep));
  CHECK(error_of("a: " + std::string(200'000, '{')).ends_with(deep));
  std::string stairs;
  for (std::size_t i = 0; i < 300; ++i) {
    stairs += std::string(i, ' ') + "a:\n";
  }
  CHECK(error_of(stairs).ends_with(deep));
  std::string nested = "1";
  for (int i = 0; i < 60; ++i) {
    nested = "[" + nested + "]";
  }
  CHECK(error_of("a: " + nested) == "no error");
  std::string wide;
  for (int i = 0; i < 20'000; ++i) {
    wide += fmt::format("key{}: {}\n", i, i);
  }
  CHECK(error_of(wide) == "no error");
}

TEST_CASE("files that cannot be read name the path", "[config]") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("longhaul_config_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      static_cast<void>(Document::from_file(path));
    } catch (const RecipeError& error) {
      CHECK(error.exit_code() == 2);
      return error.what();
    }
    return "no error";
  };
  CHECK(message(folder / "none.yaml") == (folder / "none.yaml").string() + ": cannot be opened: No such file or directory");
  CHECK(message(folder) == folder.string() + ": is a directory; give the path of a recipe file");
  CHECK(message("/dev/zero") == "/dev/zero:1:1: the file is larger than 1 MiB, which no recipe is");
  std::ofstream(folder / "recipe.yaml") << "a: 1\nb: 2\n\tc: 3\n";
  CHECK(message(folder / "recipe.yaml").starts_with((folder / "recipe.yaml").string() + ":3:1: "));
  std::ofstream(folder / "good.yaml") << "a: 1\n";
  CHECK(Document::from_file(folder / "good.yaml").given("a"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("overrides change the tree before it is read", "[config]") {
  const auto doc = Document::from_string("a: {b: 1, c: x}\nstages: [{steps: 1}, {steps: 2}]\nempty:\n",
                                         {"a.b=2", "stages.1.steps=1e3", "new.section.key=[1, 2]", "a.c= y ", "empty.k={m: 1}", "a.b=3",
                                          "a.nil=", "a.t=\"5\"", "e=a=b"});
  CHECK(doc.problems().empty());
  CHECK(emit(doc.root()) ==
        "a:\n  b: 3\n  c: y\n  nil: null\n  t: \"5\"\nstages:\n  - steps: 1\n  - steps: 1e3\nempty:\n  k:\n    m: 1\n"
        "new:\n  section:\n    key: [1, 2]\ne: a=b\n");
  const auto source = [&](std::string_view key) { return doc.source_map().source_name(doc.source_map().nearest(key)); };
  CHECK(source("a.b") == "--set a.b=3");
  CHECK(source("a.c") == "--set a.c= y ");
  CHECK(source("a") == "recipe.yaml");
  CHECK(source("stages.0.steps") == "recipe.yaml");
  CHECK(source("stages.1.steps") == "--set stages.1.steps=1e3");
  CHECK(source("empty.k.m") == "--set empty.k={m: 1}");
  CHECK(source("new.section") == "--set new.section.key=[1, 2]");
}

TEST_CASE("wrong overrides are reported in one pass", "[config]") {
  CHECK(error_of("a: {b: 1}\nstages: [{steps: 1}, {steps: 2}]\nnone: []\n",
                 {"stages.2.steps=5", "stages.x=5", "none.0=1", "a.b.c=5", "nokey", "=5", "a..b=1", "a.b=[1", "a.b={c: 1, c: 2}",
                  "a.b=*x", "a.b=\xff"}) ==
        "--set stages.2.steps=5: stages.2.steps: stages has the entries 0 to 1, got 2\n"
        "--set stages.x=5: stages.x: stages has the entries 0 to 1, got x\n"
        "--set none.0=1: none.0: none is an empty list\n"
        "--set a.b.c=5: a.b.c: a.b is 1, not a section\n"
        "--set nokey: must have the form key=value, for example optimizer.learning_rate=1e-4\n"
        "--set =5: must have the form key=value, for example optimizer.learning_rate=1e-4\n"
        "--set a..b=1: a..b: the key has an empty part\n"
        "--set a.b=[1: a.b: '[' is not closed by ']', or a ',' is missing\n"
        "--set a.b={c: 1, c: 2}: a.b.c: duplicate key; it was first given on line 1\n"
        "--set a.b=*x: a.b: anchors and aliases (& and *) are not supported; write the values out\n"
        "--set a.b=\xff: a.b: the byte 0xff is not UTF-8; save the recipe as UTF-8 text");
  std::string deep = "a";
  for (int i = 0; i < 100; ++i) {
    deep += ".a";
  }
  CHECK(error_of("b: 1\n", {deep + "=1"}).ends_with("the key has too many parts"));
}
