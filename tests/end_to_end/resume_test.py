"""A run that was stopped, killed or cut off in the middle of a save, and resumed, is the run that was never interrupted:
bit by bit in weights, optimizer moments, balancing state and data position, and exactly in the logged loss, gradient
norm and learning rate. On one rank and on a layout of four.

The stages are 10 steps of 64 tokens and 5 of 256; the balancing pools the statistics of 4 steps, so that the stop after
step 6 falls between two updates of the bias.
"""

import json
import os
import shutil
import signal

import corpus
import driver
import run_files
from run_files import h5py

RECIPE = driver.RECIPES / "tiny_k3.yaml"
LAST = 15
FOUR_RANKS = {"parallel.pipeline": 2, "parallel.data": 2, "parallel.expert": 2}
SETTINGS = {
    "stages.0.steps": 10,
    "stages.1.steps": 5,
    "balance.sync_every_steps": 4,
    "checkpoint.every_steps": 4,
    "checkpoint.keep": 20,
    "validation.every_steps": 0,
    "validation.tokens": 512,
    "runtime.deterministic": "true",
}


class ResumeCase(driver.TestCase):
    ranks = 1
    layout = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {**SETTINGS, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation"), **cls.layout}
        cls.straight = cls.folder / "straight"
        cls.go(cls.straight)
        # Stopped after step 6, in the first stage and between two updates of the bias.
        cls.stopped = cls.folder / "stopped"
        cls.go(cls.stopped, flags=["--stop-at-step", 6])

    @classmethod
    def go(cls, run_dir, *, sets=None, ranks=None, **options):
        return cls.train(RECIPE, run_dir, ranks=ranks or cls.ranks, sets={**cls.sets, **(sets or {})}, **options)

    def copy(self, source, name):
        target = self.folder / name
        shutil.copytree(source, target)
        return target

    def assert_equals_straight(self, run_dir, first=1):
        self.assertEqual([], run_files.metric_differences(self.straight, run_dir, first))
        for step in (10, LAST):
            a, b = (run_files.checkpoint(run, step) for run in (self.straight, run_dir))
            if step > first:
                self.assertEqual([], run_files.bitwise_differences(a, b), f"checkpoint of step {step}")

    def resumed_at(self, run_dir):
        return run_files.events(run_dir, "resume")[-1]["step"]


class Basics:
    """What holds on every layout."""

    def test_stop_and_resume_between_two_updates_of_the_bias(self):
        self.assertEqual(["latest", "step_00000004", "step_00000006"], run_files.checkpoint_names(self.stopped))
        self.assertEqual(6, max(run_files.steps(self.stopped)))
        run_dir = self.copy(self.stopped, "resumed")
        self.go(run_dir, flags=["--resume"])
        self.assertEqual(6, self.resumed_at(run_dir))
        # The bias after the update at step 8 needs the statistics of steps 5 and 6 from before the stop.
        at_8 = [run_files.checkpoint(run, 8) for run in (self.straight, run_dir)]
        self.assertEqual([], run_files.bitwise_differences(*at_8))
        self.assert_equals_straight(run_dir)

    def test_killed_while_it_trains(self):
        run_dir = self.folder / "killed"
        command = driver.command_of_train(RECIPE, run_dir, self.ranks, self.sets)
        with driver.Process(command) as process:
            driver.wait_until(lambda: len(run_files.steps(run_dir)) >= 11, what="step 11", timeout=120)
            ranks = process.ranks()
            self.assertEqual(self.ranks, len(ranks))
            driver.send(ranks[max(ranks)], signal.SIGKILL)
            result = process.wait(30)  # mpirun ends the other ranks
            self.assertEqual(128 + signal.SIGKILL, result.code, result)
            driver.wait_until(lambda: not any(driver.is_running(pid) for pid in ranks.values()), what="the end of all ranks", timeout=20)
        self.go(run_dir, flags=["--resume"])
        self.assertIn(self.resumed_at(run_dir), (10, 12))
        self.assert_equals_straight(run_dir)

    def kill_in_save(self, run_dir, fault):
        """Resumes with a fault that kills a rank in the save of step 8."""
        result = self.go(run_dir, flags=["--resume"], env={"LONGHAUL_FAULT": fault}, code=128 + signal.SIGKILL)
        self.assertEqual(8, max(run_files.steps(run_dir)), result)

    def test_killed_in_the_middle_of_saves(self):
        run_dir = self.copy(self.stopped, "faults")
        for fault in ("bytes:4096", "after_rank_file", "before_index", "before_manifest", "before_rename"):
            with self.subTest(fault=fault):
                self.kill_in_save(run_dir, fault)
                self.assertEqual(6, self.resumed_at(run_dir))
                # Nothing that was cut off looks complete.
                self.assertFalse(run_files.checkpoint(run_dir, 8).exists())
                self.assertIn(".step_00000008.inprogress", run_files.checkpoint_names(run_dir))
                self.assertEqual("step_00000006\n", (run_dir / "checkpoints" / "latest").read_text())
        # Complete, but `latest` still names the one before: the directories are what counts.
        self.kill_in_save(run_dir, "before_latest")
        self.assertTrue(run_files.checkpoint(run_dir, 8).exists())
        self.assertEqual("step_00000006\n", (run_dir / "checkpoints" / "latest").read_text())
        result = self.go(run_dir, flags=["--resume"])
        self.assertEqual(8, self.resumed_at(run_dir), result)
        self.assertEqual("step_00000015\n", (run_dir / "checkpoints" / "latest").read_text())
        self.assertEqual([name for name in run_files.checkpoint_names(run_dir) if name.startswith(".")], [])
        self.assert_equals_straight(run_dir)
        warnings = " ".join(event["message"] for event in run_files.events(run_dir, "warning"))
        self.assertIn("skipped incomplete step_00000008", warnings)


class OneRank(Basics, ResumeCase):
    def test_learning_rate_is_a_function_of_the_step(self):
        # The resumed process must not start its schedule anew: a straight run of more steps than the stopped one.
        rates = {step: line["learning_rate"] for step, line in run_files.steps(self.straight).items()}
        self.assertEqual(LAST, len(set(rates.values())))
        self.assertAlmostEqual(2e-3, max(rates.values()), places=12)
        self.assertAlmostEqual(2e-4, rates[LAST], places=12)

    def test_resume_twice_across_the_change_of_stage(self):
        run_dir = self.folder / "pieces"
        for stop, resumes_at in ((9, None), (10, 9), (11, 10), (LAST, 11)):
            self.go(run_dir, flags=["--resume", "--stop-at-step", stop])
            if resumes_at is not None:
                self.assertEqual(resumes_at, self.resumed_at(run_dir))
        self.assert_equals_straight(run_dir)

    def test_a_finished_run_has_nothing_to_resume(self):
        run_dir = self.copy(self.straight, "finished")
        before = len(run_files.events(run_dir, "step"))
        self.go(run_dir, flags=["--resume"])
        self.assertEqual(before, len(run_files.events(run_dir, "step")))
        self.assert_equals_straight(run_dir)

    def test_resume_from_a_named_checkpoint(self):
        run_dir = self.copy(self.straight, "from_8")
        self.go(run_dir, flags=["--resume-from", run_files.checkpoint(run_dir, 8)])
        lines = [event["step"] for event in run_files.events(run_dir, "step")]
        self.assertEqual(list(range(1, LAST + 1)) + list(range(9, LAST + 1)), lines)  # the last line of a step wins
        self.assert_equals_straight(run_dir)

    def test_missing_parts_make_a_checkpoint_incomplete(self):
        def without_data_position(directory):
            path = directory / "manifest.json"
            manifest = json.loads(path.read_text())
            del manifest["documents"]["data"]
            path.write_text(json.dumps(manifest))

        damages = {
            "rank file": lambda directory: (directory / "rank_00000.h5").unlink(),
            "manifest": lambda directory: (directory / "manifest.json").unlink(),
            "data position": without_data_position,
            "cut off": lambda directory: os.truncate(directory / "rank_00000.h5", 100000),
        }
        for name, damage in damages.items():
            with self.subTest(name):
                run_dir = self.copy(self.stopped, "incomplete_" + name.replace(" ", "_"))
                damage(run_files.checkpoint(run_dir, 6))
                explicit = self.go(run_dir, flags=["--resume-from", run_files.checkpoint(run_dir, 6)], code=5)
                self.assertEqual(1, len(explicit.messages), explicit)
                self.assertIn("step_00000006", explicit.messages[0])
                result = self.go(run_dir, flags=["--resume", "--stop-at-step", 7])
                self.assertEqual(4, self.resumed_at(run_dir), result)
                self.assertIn("skipped incomplete step_00000006", result.output)
                self.assertEqual([], run_files.metric_differences(self.straight, run_dir, last=7))

    def test_an_interrupted_save_of_the_same_step_is_replaced(self):
        run_dir = self.copy(self.stopped, "in_the_way")
        in_progress = run_dir / "checkpoints" / ".step_00000008.inprogress"
        cut_off = run_files.checkpoint(run_dir, 8)
        for directory in (in_progress, cut_off):
            directory.mkdir()
            (directory / "rank_00000.h5").write_bytes(b"half a file")
        self.go(run_dir, flags=["--resume-from", cut_off], code=5)
        result = self.go(run_dir, flags=["--resume", "--stop-at-step", 8])
        self.assertEqual(6, self.resumed_at(run_dir), result)
        self.assertIn("replacing the incomplete", result.output)
        self.assertIn("left by a save that did not finish", result.output)
        self.assertFalse(in_progress.exists())
        self.assertEqual([], run_files.bitwise_differences(*(run_files.checkpoint(run, 8) for run in (self.straight, run_dir))))

    def test_damaged_weights_are_refused_by_name(self):
        # A restore that is wrong in one value is caught before a step is made with it: the hash of the file.
        run_dir = self.copy(self.stopped, "flipped")
        name = "model/model.layers.2.block_sparse_moe.gate.e_score_correction_bias"
        with h5py.File(run_files.checkpoint(run_dir, 6) / "rank_00000.h5", "r+") as file:
            file[name][3] += 0.25
        result = self.go(run_dir, flags=["--resume"], code=5)
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("rank_00000.h5", result.messages[0])
        self.assertIn(name, result.messages[0])
        offline = driver.convert("verify", run_files.checkpoint(run_dir, 6), code=5)
        self.assertIn(name, offline.stderr)
        self.assertEqual(6, max(run_files.steps(run_dir)))

    def test_the_comparison_catches_a_broken_restore(self):
        # Negative control of this whole file. First by hand: one value of the bias changed in what is read.
        last = run_files.checkpoint(self.straight, LAST)
        changed = self.copy(last, "changed_bias")
        name = "model/model.layers.2.block_sparse_moe.gate.e_score_correction_bias"
        with h5py.File(changed / "rank_00000.h5", "r+") as file:
            file[name][3] += 1e-6
        self.assertEqual([name + " differs"], run_files.bitwise_differences(last, changed))
        # The program's own comparison agrees.
        driver.convert("diff", last, run_files.checkpoint(self.straight, 12), code=7)
        driver.convert("diff", last, last)
        # Then by the program: weights alone, without optimizer and balancing state, is a restore that forgets.
        forgetful = self.folder / "forgetful"
        self.go(forgetful, flags=["--init-from", run_files.checkpoint(self.straight, 10)])
        differences = run_files.bitwise_differences(last, run_files.checkpoint(forgetful, LAST))
        for part in ("model/", "optimizer/", "balance/"):
            self.assertTrue([line for line in differences if part in line], f"no difference in {part}")
        self.assertTrue(run_files.metric_differences(self.straight, forgetful, 2))

    def test_weights_alone_start_a_new_run_on_other_ranks(self):
        source = run_files.checkpoint(self.straight, 4)
        runs = {}
        for ranks, layout in ((1, {}), (2, {"parallel.data": 2, "parallel.expert": 2})):
            runs[ranks] = self.folder / f"init_{ranks}"
            self.go(runs[ranks], ranks=ranks, sets=layout, flags=["--init-from", source, "--stop-at-step", 4])
        steps = run_files.steps(runs[2])
        self.assertEqual([1, 2, 3, 4], sorted(steps))
        self.assertEqual(run_files.steps(self.straight)[1]["learning_rate"], steps[1]["learning_rate"])
        self.assertEqual(run_files.steps(self.straight)[4]["tokens"], steps[4]["tokens"])
        self.assertLess(steps[1]["loss"], run_files.steps(self.straight)[1]["loss"])  # the weights have learnt something
        self.assertEqual(run_files.documents(source)["data"], run_files.documents(run_files.checkpoint(runs[2], 4))["data"])  # data from the start
        worst, place = run_files.worst_difference(runs[1], runs[2])
        self.assertLess(worst, 1e-7, place)

    def test_data_may_move_but_not_change(self):
        run_dir = self.copy(self.stopped, "other_data")
        for suffix in ("bin", "idx"):
            for name in ("moved", "changed"):
                shutil.copy(self.folder / f"corpus_train.{suffix}", self.folder / f"{name}.{suffix}")
        self.go(run_dir, sets={"data.train.0.path": self.folder / "moved"}, flags=["--resume", "--stop-at-step", 7])
        self.assertEqual([], run_files.metric_differences(self.straight, run_dir, last=7))
        with (self.folder / "changed.bin").open("r+b") as file:
            file.seek(1000)
            file.write(b"A")
        result = self.go(run_dir, sets={"data.train.0.path": self.folder / "changed"}, flags=["--resume"], code=6)
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("changed", result.messages[0])


class FourRanks(Basics, ResumeCase):
    ranks = 4
    layout = FOUR_RANKS

    def test_a_checkpoint_goes_on_at_other_layouts(self):
        # Saved on pipeline 4, between two updates of the bias.
        saved = self.folder / "pipeline_4"
        pipeline_4 = {"parallel.pipeline": 4, "parallel.data": 1, "parallel.expert": 1}
        self.go(saved, sets=pipeline_4, flags=["--stop-at-step", 6])
        layouts = {
            "pipeline 4": (4, pipeline_4),
            "one rank": (1, {"parallel.pipeline": 1, "parallel.data": 1, "parallel.expert": 1}),
            "data 2, expert 2": (2, {"parallel.pipeline": 1, "parallel.data": 2, "parallel.expert": 2}),
        }
        for name, (ranks, layout) in layouts.items():
            with self.subTest(name):
                run_dir = self.copy(saved, "resumed_" + name.replace(" ", "_"))
                self.go(run_dir, ranks=ranks, sets=layout, flags=["--resume", "--stop-at-step", 12])
                self.assertEqual(6, self.resumed_at(run_dir))
                steps, straight = run_files.steps(run_dir), run_files.steps(self.straight)
                for step in range(7, 13):
                    for key in ("loss", "grad_norm"):
                        self.assertLess(run_files.relative_difference(steps[step][key], straight[step][key]), 1e-9, f"{key} of step {step}")
                    self.assertEqual(straight[step]["learning_rate"], steps[step]["learning_rate"])
                a, b = (run_files.documents(run_files.checkpoint(run, 12)) for run in (self.straight, run_dir))
                self.assertEqual(a, b)


del ResumeCase

if __name__ == "__main__":
    driver.main()
