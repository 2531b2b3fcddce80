// The architecture inside a checkpoint: the section `model` of the recipe that every checkpoint carries.
#pragma once

#include <filesystem>
#include <string>

#include "model/options.h"

namespace longhaul {

// "model: {…}" with every key, to which the other sections of a recipe can be added.
[[nodiscard]] std::string model_recipe_text(const ModelOptions& model);

// The architecture of a checkpoint by its recipe. CheckpointError, naming `checkpoint`, when it has none that is valid.
[[nodiscard]] ModelOptions model_options_from_recipe(const std::string& recipe, const std::filesystem::path& checkpoint);

}  // namespace longhaul
