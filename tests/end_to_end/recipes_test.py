"""Recipes from outside: every file in recipes/ passes --check and prints a resolved form that loads again; every file of
tests/support/bad_recipes is refused with the messages of its header, in one pass, with exit code 2; nothing of this
needs MPI or writes a file.

With --recipe FILE only that recipe is checked: CTest has one entry for each file.
"""

import json
import os
import pathlib
import sys

import driver

BAD = driver.SOURCE / "tests" / "support" / "bad_recipes"
APPS = ("train", "prepare", "convert", "evaluate", "generate", "plan", "report", "decay_scan", "balance_canary", "bench")


# The model of tiny_k3.yaml in the keys of a released config.json.
TINY_CONFIG = {
    "vocab_size": 257, "hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 2, "q_lora_rank": 12, "kv_lora_rank": 16,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "mla_use_nope": True, "mla_use_output_gate": True,
    "linear_attn_config": {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                           "use_full_rank_gate": True, "kda_layers": [1, 2, 3, 5, 6, 7], "full_attn_layers": [4, 8]},
    "attn_res_block_size": 2, "first_k_dense_replace": 1, "intermediate_size": 64, "num_experts": 8, "num_experts_per_token": 2,
    "num_shared_experts": 1, "moe_intermediate_size": 24, "routed_expert_hidden_size": 16, "latent_moe_use_norm": True,
    "routed_scaling_factor": 1.0, "hidden_act": "situ", "rms_norm_eps": 1e-5,
}


def section(yaml_text, name):
    """The lines of one top-level section."""
    lines = yaml_text.splitlines()
    first = lines.index(f"{name}:")
    last = next((i for i in range(first + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return lines[first:last]


class RecipeCase(driver.TestCase):
    def train_alone(self, recipe, *flags, sets=None, code=0, env=None):
        """Without mpirun, in an empty folder that must stay empty."""
        work = self.folder / "empty"
        work.mkdir(exist_ok=True)
        result = self.train(recipe, ranks=None, flags=flags, sets=sets, code=code, cwd=work, env=env)
        self.assertEqual([], os.listdir(work), result)
        return result


class GoodRecipe(RecipeCase):
    recipes = sorted(driver.RECIPES.glob("*.yaml"))

    def test_check_prints_the_plan(self):
        for recipe in self.recipes:
            with self.subTest(recipe.name):
                # No MPI: a PATH without mpirun's helpers, and no network interface to look at.
                result = self.train_alone(recipe, "--check", env={"PATH": "/nonexistent"})
                for text in ("tokens a step", "memory of a rank", "weights", "pipeline ", "total: "):
                    self.assertIn(text, result.stdout)
                self.assertEqual("", result.stderr)

    def test_check_under_mpirun_prints_one_plan(self):
        result = self.train(driver.RECIPES / "tiny_k3.yaml", ranks=2, flags=["--check"])
        self.assertEqual(1, result.stdout.count("total: "), result)
        self.assertEqual(1, result.stdout.count("active without the embedding"), result)

    def test_printed_recipe_loads_again_and_prints_the_same(self):
        for recipe in self.recipes:
            with self.subTest(recipe.name):
                printed = self.train_alone(recipe, "--print-recipe").stdout
                copy = self.folder / recipe.name
                copy.write_text(printed)
                self.assertEqual(printed, self.train_alone(copy, "--print-recipe").stdout)
                plans = [self.train_alone(path, "--check").stdout for path in (recipe, copy)]
                self.assertEqual(*plans)


class BadRecipes(RecipeCase):
    def test_corpus(self):
        recipes = sorted(BAD.glob("*.yaml"))
        self.assertGreater(len(recipes), 25)
        for recipe in recipes:
            with self.subTest(recipe.name):
                expected = [line.removeprefix("# says ") for line in recipe.read_text().splitlines() if line.startswith("# says ")]
                self.assertTrue(expected, "the header has no line '# says ...'")
                result = self.train_alone(recipe, "--check", code=2)
                self.assertEqual("", result.stdout)
                problems = [line for line in result.stderr.splitlines() if recipe.name + ":" in line]
                self.assertEqual(len(expected), len(problems), result)
                self.assertEqual(len(problems), len(result.stderr.splitlines()), result)  # nothing else is said
                for text in expected:
                    self.assertTrue([line for line in problems if text in line], f"'{text}' is not in {result}")

    def test_world_size(self):
        tiny = driver.RECIPES / "tiny_k3.yaml"
        sets = {"parallel.pipeline": 2, "parallel.data": 2}
        self.assertIn("pipeline 2 x data 2", self.train_alone(tiny, "--check", "--world", 4, sets=sets).stdout)
        # The blocks begun below a cut and the stream pass it, 64 tokens of 32 floats each.
        pipeline = self.train_alone(tiny, "--check", "--world", 4, sets={"parallel.pipeline": 4}).stdout
        self.assertIn("cut in front of layer 2: 2 tensors [tokens, hidden], 16.0 KiB a micro-batch", pipeline)
        self.assertIn("cut in front of layer 6: 4 tensors [tokens, hidden], 32.0 KiB a micro-batch", pipeline)
        result = self.train_alone(tiny, "--check", "--world", 3, sets=sets, code=2)
        self.assertIn("pipeline 2 x data 2 x context 1 = 4 ranks", result.stderr)
        self.assertIn("the world has 3", result.stderr)

    def test_flags(self):
        tiny = driver.RECIPES / "tiny_k3.yaml"
        cases = {
            "unknown key": ({"bogus.key": 3}, [], "--set bogus.key=3: bogus: unknown key"),
            "no such entry": ({"stages.7.steps": 3}, [], "stages has the entries 0 to 1, got 7"),
            "wrong type": ({"stages.0.steps": "many"}, [], "stages.0.steps: must be an integer, got many"),
            "two ways to start": ({}, ["--resume", "--overwrite"], "excludes"),
            "unknown flag": ({}, ["--recompute"], "--recompute"),
            "bad step": ({}, ["--stop-at-step", "-3"], "--stop-at-step"),
        }
        for name, (sets, flags, text) in cases.items():
            with self.subTest(name):
                self.assertIn(text, self.train_alone(tiny, "--check", *flags, sets=sets, code=2).stderr)
        missing = self.train_alone(self.folder / "missing.yaml", "--check", code=2)
        self.assertIn("missing.yaml", missing.stderr)
        self.assertEqual(1, len(missing.messages), missing)

    def test_notes_are_allowed_under_their_own_prefix(self):
        recipe = self.folder / "notes.yaml"
        recipe.write_text((driver.RECIPES / "tiny_k3.yaml").read_text() + "x_notes: {author: someone, tried: [1, 2]}\n")
        self.train_alone(recipe, "--check")

    def test_resolved_recipe_does_not_need_the_model_config(self):
        # The released keys as JSON beside the recipe; the resolved recipe holds their values and loads anywhere.
        resolved = section(self.train_alone(driver.RECIPES / "tiny_k3.yaml", "--print-recipe").stdout, "model")
        sources = self.folder / "sources"
        sources.mkdir()
        (sources / "config.json").write_text(json.dumps({"model_type": "kimi_k3", **TINY_CONFIG}))
        (sources / "recipe.yaml").write_text(
            "model: {config: config.json}\ndata: {train: [{path: x}]}\n"
            "stages: [{name: a, sequence_length: 64, steps: 3, global_batch_tokens: 128}]\n")
        printed = self.train_alone(sources / "recipe.yaml", "--print-recipe").stdout
        self.assertEqual(resolved, section(printed, "model"))
        elsewhere = self.folder / "elsewhere.yaml"
        elsewhere.write_text(printed)
        self.assertEqual(printed, self.train_alone(elsewhere, "--print-recipe").stdout)

    def test_help_and_version(self):
        built = [app for app in APPS if driver.program(app).exists()]
        self.assertIn("train", built)
        for app in built:
            for flag, text in (("--help", "Usage"), ("--version", app)):
                with self.subTest(f"{app} {flag}"):
                    result = driver.run([driver.program(app), flag], env={"PATH": "/nonexistent"}, cwd=self.folder)
                    self.assertEqual(0, result.code, result)
                    self.assertIn(text, result.stdout)
                    self.assertEqual("", result.stderr)
        version = driver.run([driver.program("train"), "--version"]).stdout
        for library in ("cuda", "nccl", "mpi", "hdf5"):
            self.assertIn(library, version)


del RecipeCase

if __name__ == "__main__":
    if "--recipe" in sys.argv:
        at = sys.argv.index("--recipe")
        GoodRecipe.recipes = [pathlib.Path(sys.argv[at + 1]).resolve()]
        del sys.argv[at : at + 2]
    driver.main()
