// The run directory: what is in it, and starting afresh.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace longhaul {

// What a directory that holds a run says about it: "step 40"; nothing when it holds none. Reads the newest checkpoint,
// or else the last step of metrics.jsonl.
[[nodiscard]] std::optional<std::string> existing_run(const std::filesystem::path& directory);

// Removes what a run writes (recipe.yaml, metrics.jsonl, log.txt, checkpoints) and leaves everything else alone.
void clear_run(const std::filesystem::path& directory);

// Makes the directory and writes the resolved recipe. Errors: RecipeError when the directory cannot be made.
void write_recipe(const std::filesystem::path& directory, const std::string& recipe_text);

}  // namespace longhaul
