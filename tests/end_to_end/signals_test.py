"""A signal to one rank, or to mpirun, stops all ranks after the same step with a checkpoint and exit code 75, and the
run goes on from there as if nothing had been. Only the signals of the recipe do this; the wall-time limit does it too."""

import signal

import corpus
import driver
import run_files

RECIPE = driver.RECIPES / "tiny_k3.yaml"
PREEMPTED = 75
# More steps than any test makes: a run that misses its signal fails by its time limit.
SETTINGS = {"stages.0.steps": 100000, "validation.every_steps": 0, "validation.tokens": 512, "checkpoint.every_steps": 0,
            "runtime.deterministic": "true", "optimizer.schedule": "constant"}
TWO_RANKS = {"parallel.data": 2, "parallel.expert": 2}


class Signals(driver.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {**SETTINGS, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}

    def start(self, run_dir, ranks=2, sets=None):
        layout = TWO_RANKS if ranks == 2 else {}
        return driver.Process(driver.command_of_train(RECIPE, run_dir, ranks, {**self.sets, **layout, **(sets or {})}))

    def wait_for_steps(self, process, run_dir, count=2):
        driver.wait_until(lambda: len(run_files.steps(run_dir)) >= count or process.popen.poll() is not None, timeout=180, what=f"step {count}")
        if process.popen.poll() is not None:
            self.fail(f"the run has ended by itself: {process.wait()}")

    def check_preempted(self, result, run_dir, ranks=2):
        self.assertEqual(PREEMPTED, result.code, result)
        step = max(run_files.steps(run_dir))
        self.assertEqual(["latest", f"step_{step:08d}"], run_files.checkpoint_names(run_dir))
        manifest = run_files.manifest(run_files.checkpoint(run_dir, step))
        self.assertEqual(step, manifest["step"])
        self.assertEqual(ranks, len([file for file in manifest["files"] if file["name"].startswith("rank_")]))
        end = run_files.events(run_dir, "end")[-1]
        self.assertEqual(("preempted", step), (end["reason"], end["step"]))
        return step

    def test_signal_to_one_rank_then_resume(self):
        run_dir = self.folder / "one_rank_signalled"
        with self.start(run_dir) as process:
            self.wait_for_steps(process, run_dir)
            driver.send(process.ranks()[1], signal.SIGUSR1)
            step = self.check_preempted(process.wait(60), run_dir)
        driver.convert("verify", run_files.checkpoint(run_dir, step))
        self.train(RECIPE, run_dir, ranks=2, sets={**self.sets, **TWO_RANKS}, flags=["--resume", "--stop-at-step", step + 3])
        straight = self.folder / "straight"
        self.train(RECIPE, straight, ranks=2, sets={**self.sets, **TWO_RANKS}, flags=["--stop-at-step", step + 3])
        self.assertEqual([], run_files.metric_differences(straight, run_dir))
        self.assertEqual([], run_files.bitwise_differences(*(run_files.checkpoint(run, step + 3) for run in (straight, run_dir))))

    def test_signal_to_mpirun_reaches_all_ranks(self):
        run_dir = self.folder / "mpirun_signalled"
        with self.start(run_dir) as process:
            self.wait_for_steps(process, run_dir)
            driver.send(process.popen.pid, signal.SIGUSR1)
            self.check_preempted(process.wait(60), run_dir)

    def test_term_to_one_rank(self):
        run_dir = self.folder / "term"
        with self.start(run_dir) as process:
            self.wait_for_steps(process, run_dir)
            driver.send(process.ranks()[0], signal.SIGTERM)
            self.check_preempted(process.wait(60), run_dir)

    def test_only_the_signals_of_the_recipe(self):
        for number, code in ((signal.SIGUSR2, PREEMPTED), (signal.SIGUSR1, 128 + signal.SIGUSR1)):
            with self.subTest(number.name):
                run_dir = self.folder / number.name
                with self.start(run_dir, ranks=1, sets={"runtime.signals": "[USR2, HUP]"}) as process:
                    self.wait_for_steps(process, run_dir)
                    driver.send(process.ranks()[0], number)
                    result = process.wait(60)
                if code == PREEMPTED:
                    self.check_preempted(result, run_dir, ranks=1)
                else:
                    self.assertEqual(code, result.code, result)  # the default action: the process is gone
                    self.assertEqual([], run_files.checkpoint_names(run_dir))

    def test_wall_time_limit(self):
        run_dir = self.folder / "minutes"
        with self.start(run_dir, sets={"runtime.max_minutes": 0.02}) as process:
            result = process.wait(180)
        self.assertGreaterEqual(self.check_preempted(result, run_dir), 1)


if __name__ == "__main__":
    driver.main()
