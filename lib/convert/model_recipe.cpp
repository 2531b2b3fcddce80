// See model_recipe.h.
#include "convert/model_recipe.h"

#include "config/read.h"
#include "config/write.h"

namespace longhaul {

namespace {

// A recipe of which only this section is of interest.
struct ModelRecipe {
  ModelOptions model;
};

template <class V>
void describe(V& v, ModelRecipe& o) {
  v.field("model", o.model, "the architecture");
}

}  // namespace

std::string model_recipe_text(const ModelOptions& model) { return config::dump(ModelRecipe{.model = model}); }

ModelOptions model_options_from_recipe(const std::string& recipe, const std::filesystem::path& checkpoint) {
  try {
    const config::Document document = config::Document::from_string(recipe);
    if (document.find("model") == nullptr) {
      throw RecipeError("the section model is missing");
    }
    ModelRecipe result;
    config::Diagnostics diagnostics;
    config::read(document, result, diagnostics, {.unknown_keys = config::UnknownKeys::Ignore, .missing_keys = config::MissingKeys::Allow});
    check(result.model, [&](std::string_view key, const std::string& message) { diagnostics.add("model." + std::string(key), message); });
    diagnostics.throw_if_any();
    return result.model;
  } catch (const Error& error) {
    throw CheckpointError("{}: its recipe does not describe a model: {}", checkpoint.string(), error.what());
  }
}

}  // namespace longhaul
