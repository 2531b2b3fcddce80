"""Checkpoints of tensors on a GPU that are written while training goes on: equal, bit by bit, to those that are waited for, with a
large staging buffer and with the smallest; killed and resumed, the run ends where the straight one does.

Skipped where no GPU is. Needs no h5py: `convert` compares. With LONGHAUL_CHECKPOINT_BACKEND=cpu the same runs on the CPU.
"""

import os
import pathlib
import shutil
import signal
import time
import unittest

import corpus
import driver

BACKEND = os.environ.get("LONGHAUL_CHECKPOINT_BACKEND", "cuda")
RECIPE = driver.RECIPES / "quickstart.yaml"
STEPS = 8
SETTINGS = {
    # Little to compute and 70 MB of state, more than the smallest staging buffer holds.
    "model.num_experts": 32,
    "model.moe_intermediate_size": 128,
    "stages.0.sequence_length": 256,
    "stages.0.global_batch_tokens": 1024,
    "stages.0.steps": STEPS,
    "stages.1.sequence_length": 256,
    "stages.1.global_batch_tokens": 1024,
    "stages.1.steps": 1,
    "parallel.pipeline": 1,
    "parallel.data": 1,
    "parallel.expert": 1,
    "parallel.micro_batch_tokens": 256,
    "checkpoint.every_steps": 2,
    "checkpoint.keep": 20,
    "validation.every_steps": 0,
    "data.validation": "[]",
    "runtime.backend": BACKEND,
    "runtime.deterministic": "true",
}
KINDS = {
    "waited": {"checkpoint.async": "false"},
    "background": {"checkpoint.async": "true"},
    "little memory": {"checkpoint.async": "true", "checkpoint.staging_mib": 16},
    "compressed": {"checkpoint.async": "true", "checkpoint.compression": "zstd"},
}


def has_device():
    return BACKEND == "cpu" or pathlib.Path("/dev/nvidia0").exists()


@unittest.skipUnless(has_device(), "this machine has no GPU")
class OneGpu(driver.TestCase):
    ranks = None  # the program alone: no mpirun is needed
    layout = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {**SETTINGS, **cls.layout, "data.train.0.path": f"{prefix}_train"}
        cls.runs = {}
        for kind, sets in KINDS.items():
            cls.runs[kind] = cls.folder / kind.replace(" ", "_")
            cls.train(RECIPE, cls.runs[kind], ranks=cls.ranks, sets={**cls.sets, **sets}, timeout=300)

    def expect_equal(self, run, other, steps):
        for step in steps:
            a, b = (path / "checkpoints" / f"step_{step:08d}" for path in (run, other))
            driver.convert("verify", b)
            result = driver.convert("diff", a, b)  # exit code 0: equal bit by bit
            print(f"{b.parent.parent.name} step {step}: {result.stdout.splitlines()[-2].split(';')[0]}", flush=True)

    def test_background_saves_equal_those_that_are_waited_for(self):
        for kind in list(KINDS)[1:]:
            with self.subTest(kind=kind):
                self.expect_equal(self.runs["waited"], self.runs[kind], [2, 4, 6, STEPS, STEPS + 1])

    def test_killed_and_resumed(self):
        run_dir = self.folder / "killed"
        sets = {**self.sets, **KINDS["background"]}
        with driver.Process(driver.command_of_train(RECIPE, run_dir, ranks=self.ranks, sets=sets)) as process:
            # In the save of step 4, or right behind it.
            deadline = time.monotonic() + 200
            wanted = [run_dir / "checkpoints" / name for name in (".step_00000004.inprogress", "step_00000004")]
            while not any(path.exists() for path in wanted) and process.popen.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            victims = process.ranks().values() if self.ranks else [process.popen.pid]
            for pid in list(victims):
                os.kill(pid, signal.SIGKILL)
        left = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
        self.assertIn("step_00000002", left)
        self.assertNotIn(f"step_{STEPS:08d}", left, "it was killed too late")
        self.train(RECIPE, run_dir, ranks=self.ranks, sets=sets, flags=["--resume"], timeout=300)
        self.expect_equal(self.runs["waited"], run_dir, [6, STEPS, STEPS + 1])


@unittest.skipUnless(has_device() and shutil.which("mpirun"), "this machine has no GPU, or no mpirun")
class TwoRanksOnOneGpu(OneGpu):
    ranks = 2
    layout = {"parallel.data": 2, "parallel.expert": 2, **({"runtime.communicator": "staged"} if BACKEND == "cuda" else {})}


if __name__ == "__main__":
    driver.main()
