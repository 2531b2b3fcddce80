"""recipes/quickstart.yaml as it stands, with fewer steps and a text that is made here: four ranks, two context lengths,
and a loss that falls clearly."""

import math
import statistics

import corpus
import driver
import run_files


class Quickstart(driver.TestCase):
    def test_quickstart_recipe_learns(self):
        prefix = corpus.prepare(self.folder, documents=300)
        run_dir = self.folder / "run"
        sets = {"stages.0.steps": 20, "stages.1.steps": 3, "optimizer.warmup_steps": 5, "validation.every_steps": 10, "validation.tokens": 8192,
                "checkpoint.every_steps": 0, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}
        self.train(driver.RECIPES / "quickstart.yaml", run_dir, ranks=4, sets=sets)
        steps = run_files.steps(run_dir)
        self.assertEqual(23, len(steps))
        losses = [line["loss"] for line in steps.values()]
        self.assertAlmostEqual(math.log(257), losses[0], delta=0.3)  # nothing is known at the start
        self.assertLess(statistics.mean(losses[-3:]), statistics.mean(losses[:10]) - 1.0)
        self.assertLess(max(losses[-3:]), 3.8)
        stages = run_files.events(run_dir, "stage")
        self.assertEqual([512, 2048], [stage["sequence_length"] for stage in stages])
        self.assertEqual([(1, 20), (21, 23)], [(stage["first_step"], stage["last_step"]) for stage in stages])
        self.assertLess(losses[20], losses[18] + 0.5)  # the change of length does not throw the model back
        validations = run_files.events(run_dir, "validation")
        self.assertEqual([10, 20, 23], [event["step"] for event in validations])
        bits = [event["bits_per_byte"] for event in validations]
        self.assertLess(bits[-1], bits[0])
        self.assertLess(bits[-1], 5.5)
        self.assertEqual(["latest", "step_00000020", "step_00000023"], run_files.checkpoint_names(run_dir))
        between = run_files.manifest(run_files.checkpoint(run_dir, 20))
        self.assertEqual((20, True), (between["step"], between["stage_final"]))


if __name__ == "__main__":
    driver.main()
