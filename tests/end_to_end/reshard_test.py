"""A checkpoint of any layout goes on at any other: saved on four pipeline stages, on two data ranks with their experts shared,
and on two stages of such, each is resumed at every other and on one rank. What the new layout holds and saves again without a
step is the old one's state bit by bit, gathered: weights, optimizer, balance and data position. The ten losses that follow, a
change of stage among them, are those of the uninterrupted run within 1e-5; the steps are in float32.

The run that saves writes in the background, so that the state is one that training has left behind by the time it is written.
"""

import corpus
import driver
import run_files

RECIPE = driver.RECIPES / "tiny_k3.yaml"
SAVED, STEPS = 6, 10
TOLERANCE = 1e-5
LAYOUTS = {
    "pipeline 4": (4, {"parallel.pipeline": 4, "parallel.data": 1, "parallel.expert": 1}),
    "data 2 x expert 2": (2, {"parallel.pipeline": 1, "parallel.data": 2, "parallel.expert": 2}),
    "pipeline 2 x expert 2": (4, {"parallel.pipeline": 2, "parallel.data": 2, "parallel.expert": 2}),
    "one rank": (1, {"parallel.pipeline": 1, "parallel.data": 1, "parallel.expert": 1}),
}
SETTINGS = {
    "stages.0.steps": 12,
    "stages.1.steps": 8,
    "stages.1.global_batch_tokens": 512,
    "balance.sync_every_steps": 4,
    "checkpoint.keep": 20,
    "checkpoint.async": "true",
    "validation.every_steps": 0,
    "validation.tokens": 512,
    "runtime.deterministic": "true",
}


class Reshard(driver.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {**SETTINGS, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}

    def go(self, run_dir, layout, flags=(), **sets):
        ranks, parallel = LAYOUTS[layout]
        return self.train(RECIPE, run_dir, ranks=ranks, sets={**self.sets, **parallel, **sets}, flags=flags)

    def check_saved_at(self, source):
        straight = self.folder / source.replace(" ", "_")
        self.go(straight, source, ["--stop-at-step", SAVED + STEPS], **{"checkpoint.every_steps": SAVED})
        saved = run_files.checkpoint(straight, SAVED)
        self.assertTrue([event["async"] for event in run_files.events(straight, "checkpoint") if event["step"] == SAVED][0])
        for target in LAYOUTS:
            if target == source:
                continue
            with self.subTest(resumed_at=target):
                run_dir = self.folder / f"{straight.name}_at_{target.replace(' ', '_')}"
                self.go(run_dir, target, ["--resume-from", saved, "--stop-at-step", SAVED])
                self.assertEqual([], run_files.bitwise_differences(saved, run_files.checkpoint(run_dir, SAVED)))
                self.assertEqual(LAYOUTS[target][0], len(list(run_files.checkpoint(run_dir, SAVED).glob("rank_*.h5"))))
                self.go(run_dir, target, ["--resume", "--stop-at-step", SAVED + STEPS])
                self.assertEqual(SAVED, run_files.events(run_dir, "resume")[-1]["step"])
                a, b = run_files.steps(straight), run_files.steps(run_dir)
                next_steps = range(SAVED + 1, SAVED + STEPS + 1)
                differences = [run_files.relative_difference(a[step]["loss"], b[step]["loss"]) for step in next_steps]
                self.assertLess(max(differences), TOLERANCE)
                last = [run_files.documents(run_files.checkpoint(run, SAVED + STEPS)) for run in (straight, run_dir)]
                self.assertEqual(*last)
                print(f"\n  {source} -> {target}: state bitwise equal, {STEPS} losses differ by {max(differences):.1e} at most", end="",
                      flush=True)

    def test_saved_on_pipeline_4(self):
        self.check_saved_at("pipeline 4")

    def test_saved_on_data_2_expert_2(self):
        self.check_saved_at("data 2 x expert 2")

    def test_saved_on_pipeline_2_expert_2(self):
        self.check_saved_at("pipeline 2 x expert 2")


if __name__ == "__main__":
    driver.main()
