"""Processes killed at random moments of training and saving, again and again: after every kill the newest checkpoint is whole,
--resume goes on from exactly that one, and the run ends with the weights, optimizer, balance and data state of one that was
never killed, bit by bit. For several layouts, with saves that hold the step and saves in the background.

LONGHAUL_KILLS is how often in all (8 where it is not set; 200 takes a good half hour on two cores), LONGHAUL_KILL_SEED chooses
the moments. A line a kill says when it came and what was left.
"""

import os
import random
import signal
import time

import corpus
import driver
import run_files

RECIPE = driver.RECIPES / "tiny_k3.yaml"
KILLS = int(os.environ.get("LONGHAUL_KILLS", "8"))
SEED = int(os.environ.get("LONGHAUL_KILL_SEED", "1"))
LAST = 26
LAYOUTS = {
    "pipeline 2 x data 2, expert 2": (4, {"parallel.pipeline": 2, "parallel.data": 2, "parallel.expert": 2}),
    "data 2": (2, {"parallel.data": 2}),
}
SETTINGS = {
    "stages.0.steps": 20,
    "stages.0.global_batch_tokens": 256,
    "stages.1.steps": 6,
    "stages.1.global_batch_tokens": 512,
    "balance.sync_every_steps": 3,
    "checkpoint.every_steps": 2,
    "checkpoint.keep": 2,
    "checkpoint.major_every": 12,
    "validation.every_steps": 0,
    "validation.tokens": 512,
    "runtime.deterministic": "true",
}


def complete_checkpoints(run_dir):
    """Steps whose directory has its name; only a save that is through gives it."""
    return sorted(int(name[5:]) for name in run_files.checkpoint_names(run_dir) if name.startswith("step_"))


def saves_now(run_dir):
    return any(name.endswith(".inprogress") for name in run_files.checkpoint_names(run_dir))


class Kills(driver.TestCase):
    def setUp(self):
        self.rng = random.Random(SEED)
        prefix = corpus.prepare(self.folder)
        self.data = corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")

    def start(self, run_dir, ranks, sets, flags=()):
        return driver.Process(driver.command_of_train(RECIPE, run_dir, ranks, sets, flags))

    def kill_once(self, run_dir, ranks, sets):
        """Resumes the run and kills it after a few steps. False when it came to its end instead."""
        before = complete_checkpoints(run_dir)
        reached = max(run_files.steps(run_dir), default=0)
        target = min(LAST, (before[-1] if before else 0) + self.rng.randint(0, 5))
        in_save = self.rng.random() < 0.6
        delay = self.rng.random() * (0.06 if in_save else 0.25)
        resumes = len(run_files.events(run_dir, "resume"))
        with self.start(run_dir, ranks, sets, ["--resume"]) as process:
            lines = len(run_files.events(run_dir, "step"))
            wanted = target - (before[-1] if before else 0)

            def is_time():
                if process.popen.poll() is not None:
                    return True
                return len(run_files.events(run_dir, "step")) - lines >= wanted and (not in_save or saves_now(run_dir))

            deadline = time.monotonic() + 300
            while not is_time():
                self.assertLess(time.monotonic(), deadline, f"no step {target}, or no save, in {run_dir}")
                time.sleep(0.002)
            time.sleep(delay)
            processes = process.ranks()
            while process.popen.poll() is None and len(processes) < ranks and time.monotonic() < deadline:
                processes = process.ranks()
            if len(processes) < ranks:
                result = process.wait(300)
                self.assertEqual(0, result.code, result)
                return False
            # One rank, whose fellows mpirun then ends; or all at the same moment, as a node does that loses its power.
            victims = list(processes.values()) if self.rng.random() < 0.5 else [self.rng.choice(list(processes.values()))]
            for pid in victims:
                driver.send(pid, signal.SIGKILL)
            result = process.wait(120)
            if result.code == 0:  # it was at its very end
                return False
            self.assertEqual(128 + signal.SIGKILL, result.code, result)
            driver.wait_until(lambda: not any(map(driver.is_running, processes.values())), what="the end of all ranks", timeout=60)
        if before:
            found = run_files.events(run_dir, "resume")
            if len(found) > resumes:  # killed before it had read anything otherwise
                self.assertEqual(before[-1], found[-1]["step"], "the newest complete checkpoint is the one to resume from")
        after = complete_checkpoints(run_dir)
        self.assertTrue(not before or after[-1] >= before[-1], f"{before} before, {after} after")
        for step in after[-1:]:
            driver.convert("verify", run_files.checkpoint(run_dir, step))
        left = "in a save" if saves_now(run_dir) else "between saves"
        last = max(run_files.steps(run_dir), default=reached)
        print(f"  killed {len(victims)} of {ranks} ranks {left}, last step {last}, checkpoints {after}", flush=True)
        return True

    def test_killed_again_and_again(self):
        cases = [(name, asynchronous) for name in LAYOUTS for asynchronous in ("true", "false")]
        compressions = ("none", "zstd", "zstd", "none")  # each with and without a save in the background
        kills_in_saves = kills = ends = 0
        for number, (name, asynchronous) in enumerate(cases):
            with self.subTest(layout=name, asynchronous=asynchronous):
                ranks, layout = LAYOUTS[name]
                sets = {**SETTINGS, **self.data, **layout, "checkpoint.async": asynchronous,
                        "checkpoint.compression": compressions[number % len(compressions)]}
                is_compressed = sets["checkpoint.compression"] != "none"
                straight = self.folder / f"straight_{number}"
                self.train(RECIPE, straight, ranks=ranks, sets={**sets, "checkpoint.compression": "none"}, timeout=600)
                budget = KILLS * (number + 1) // len(cases) - KILLS * number // len(cases)
                attempt = 0
                while budget > 0:
                    run_dir = self.folder / f"run_{number}_{attempt}"
                    attempt += 1
                    print(f"{name}, async {asynchronous}, {sets['checkpoint.compression']}, run {attempt}", flush=True)
                    is_alive = True
                    while budget > 0 and is_alive:
                        is_alive = self.kill_once(run_dir, ranks, sets)
                        if is_alive:
                            budget -= 1
                            kills += 1
                            kills_in_saves += saves_now(run_dir)
                    with self.start(run_dir, ranks, sets, ["--resume"]) as process:
                        result = process.wait(600)
                        self.assertEqual(0, result.code, result)
                    self.assertEqual([], run_files.metric_differences(straight, run_dir))
                    a, b = (run_files.checkpoint(run, LAST) for run in (straight, run_dir))
                    if is_compressed:  # h5py has no filter to read it
                        driver.convert("verify", b)
                        self.assertEqual(run_files.value_hashes(a), run_files.value_hashes(b))
                        self.assertEqual(run_files.documents(a), run_files.documents(b))
                    else:
                        self.assertEqual([], run_files.bitwise_differences(a, b))
                    self.assertEqual([], [entry for entry in run_files.checkpoint_names(run_dir) if entry.startswith(".")])
                    self.assertEqual(run_files.checkpoint_names(straight), run_files.checkpoint_names(run_dir))
                    ends += 1
        print(f"{kills} kills, {kills_in_saves} of them in a save; {ends} runs ended as the uninterrupted one", flush=True)
        self.assertEqual(KILLS, kills)


if __name__ == "__main__":
    driver.main()
