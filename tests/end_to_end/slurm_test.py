"""scripts/slurm/train.sbatch as Slurm would run it, with a stand-in for scontrol: USR1 to the script ends in a checkpoint and a place in
the queue, the same command resumes, and a failure keeps its exit code."""

import os
import pathlib
import signal

import corpus
import driver
import run_files

SCRIPT = driver.SOURCE / "scripts/slurm/train.sbatch"


class Slurm(driver.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {"parallel.data": 2, "validation.every_steps": 0, "validation.tokens": 512, "stages.1.steps": 1, "optimizer.schedule": "constant",
                    **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}
        cls.requeued = cls.folder / "requeued"
        cls.bin = cls.folder / "bin"
        cls.bin.mkdir()
        stand_in = cls.bin / "scontrol"
        stand_in.write_text(f'#!/bin/sh\necho "$@" > {cls.requeued}\n')
        stand_in.chmod(0o755)

    def job(self, run_dir, **sets):
        path = [str(self.bin), os.environ["PATH"]]
        if pathlib.Path(driver.settings.mpiexec).is_absolute():
            path.insert(1, str(pathlib.Path(driver.settings.mpiexec).parent))
        environment = {"PATH": ":".join(path), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "77", "LONGHAUL_BIN": str(driver.settings.bin)}
        command = ["bash", SCRIPT, driver.RECIPES / "tiny_k3.yaml", "--run-dir", run_dir]
        for key, value in {**self.sets, **sets}.items():
            command += ["--set", f"{key}={value}"]
        return driver.Process(command, environment, driver.SOURCE)

    def test_preempted_requeued_and_resumed(self):
        run = self.folder / "run"
        with self.job(run, **{"stages.0.steps": 100000}) as job:
            driver.wait_until(lambda: len(run_files.steps(run)) >= 2 or job.popen.poll() is not None, timeout=120, what="step 2")
            driver.send(job.popen.pid, signal.SIGUSR1)
            result = job.wait(60)
        self.assertEqual(0, result.code, result)
        self.assertEqual("requeue 77", self.requeued.read_text().strip(), result)
        self.requeued.unlink()
        stopped = max(run_files.steps(run))
        with self.job(run, **{"stages.0.steps": stopped + 2}) as job:
            result = job.wait(120)
        self.assertEqual(0, result.code, result)
        self.assertFalse(self.requeued.exists(), result)
        self.assertEqual(set(range(1, stopped + 4)), set(run_files.steps(run)))

    def test_the_signal_is_passed_on_once(self):
        # A stand-in for mpirun that counts, and ends as a preempted run does.
        folder = self.folder / "stand_in"
        folder.mkdir()
        count = folder / "count"
        mpirun = folder / "mpirun"
        mpirun.write_text(f"#!/bin/bash\ntrap 'echo USR1 >> {count}' USR1\ntouch {count}\n"
                          f"until [ -s {count} ]; do sleep 0.05; done\nsleep 1\necho ended >> {count}\nexit 75\n")
        mpirun.chmod(0o755)
        environment = {"PATH": f"{folder}:{self.bin}:{os.environ['PATH']}", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "78"}
        with driver.Process(["bash", SCRIPT, driver.RECIPES / "tiny_k3.yaml"], environment, folder) as job:
            driver.wait_until(count.exists, what="the stand-in")
            driver.send(job.popen.pid, signal.SIGUSR1)
            result = job.wait(30)
        self.assertEqual(0, result.code, result)
        self.assertEqual(["USR1", "ended"], count.read_text().split())  # and the script has waited for its end
        self.assertEqual("requeue 78", self.requeued.read_text().strip(), result)
        self.requeued.unlink()

    def test_a_failure_keeps_its_code(self):
        with self.job(self.folder / "other", **{"stages.0.steps": "no"}) as job:
            result = job.wait(60)
        self.assertEqual(2, result.code, result)
        self.assertFalse(self.requeued.exists(), result)


if __name__ == "__main__":
    driver.main()
