"""What a user sees when something is wrong: the exit code of the contract on every rank, one message from one rank, and
nothing left behind that looks like a run."""

import math
import os
import shutil
import signal
import struct

import corpus
import driver
import run_files

RECIPE = driver.RECIPES / "tiny_k3.yaml"
SHORT = {"stages.0.steps": 2, "stages.1.steps": 1, "validation.tokens": 256}


class ErrorCase(driver.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.write_megatron(cls.folder / "corpus", corpus.mixed_documents(total=8000))
        cls.sets = {**SHORT, **corpus.data_sets(prefix, prefix)}

    def refused(self, name, *texts, code, ranks=2, sets=None, flags=(), recipe=RECIPE, run_dir=None):
        """One message with these texts, and no run directory."""
        target = run_dir or self.folder / name
        result = self.train(recipe, target, ranks=ranks, sets={**self.sets, **(sets or {})}, flags=flags, code=code)
        self.assertEqual(1, len(result.messages), result)
        for text in texts:
            self.assertIn(text, result.stderr)
        if run_dir is None:
            self.assertFalse(target.exists(), result)
        return result


class Launch(ErrorCase):
    def test_world_of_another_size_than_the_layout(self):
        self.refused("world", "pipeline 2 x data 2 x context 1 = 4 ranks", "the world has 3", code=2, ranks=3,
                     sets={"parallel.pipeline": 2, "parallel.data": 2})

    def test_bad_recipe_on_three_ranks_is_one_message(self):
        recipe = self.folder / "bad.yaml"
        recipe.write_text(RECIPE.read_text() + "learning_rate: 1e-3\nparallel: {pipline: 3}\n")
        result = self.refused("bad", "did you mean optimizer.learning_rate?", "did you mean parallel.pipeline?", code=2, ranks=3, recipe=recipe)
        self.assertEqual(1, result.stderr.count("optimizer.learning_rate"))

    def test_slurm_without_an_mpi_launcher(self):
        # srun without PMIx: every process believes to be alone. All four would train into one directory.
        work = self.folder / "slurm"
        work.mkdir()
        result = self.train(RECIPE, "run", ranks=None, sets=self.sets, code=2, cwd=work, env={"SLURM_NTASKS": "4", "SLURM_PROCID": "2"})
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("srun --mpi=pmix", result.stderr)
        self.assertIn("mpirun -n 4", result.stderr)
        self.assertEqual([], os.listdir(work))

    def test_ranks_with_different_recipes(self):
        parts = []
        for rate in ("1.0e-3", "2.0e-3"):
            part = driver.command_of_train(RECIPE, self.folder / "mixed", 1, {**self.sets, "parallel.data": 2, "optimizer.learning_rate": rate})
            parts.append(part[1:])  # without mpirun
        result = driver.run([driver.settings.mpiexec, *parts[0], ":", *parts[1]])
        self.assertEqual(2, result.code, result)
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("rank 1 runs another recipe than rank 0", result.stderr)
        self.assertFalse((self.folder / "mixed").exists())

    def test_ranks_with_different_builds(self):
        other = self.folder / "another_train"
        shutil.copy(driver.program("train"), other)
        with other.open("ab") as file:
            file.write(b"a byte behind what is loaded")
        parts = [driver.command_of_train(RECIPE, self.folder / "builds", 1, {**self.sets, "parallel.data": 2})[1:] for _ in range(2)]
        parts[1][parts[1].index(driver.program("train"))] = other
        result = driver.run([driver.settings.mpiexec, *parts[0], ":", *parts[1]])
        self.assertEqual(2, result.code, result)
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("rank 1 runs another build of this program than rank 0", result.stderr)
        self.assertFalse((self.folder / "builds").exists())

    def test_more_memory_than_the_host_has(self):
        # Predicted, before anything is allocated: the embedding and the head of this vocabulary take terabytes.
        self.refused("memory", "stage short needs", "GiB for the 2 ranks of this host", "largest rank scratch take", "use a smaller", code=8,
                     sets={"parallel.pipeline": 2, "model.vocab_size": 2000000000})

    def test_one_rank_speaks(self):
        result = self.train(RECIPE, self.folder / "four", ranks=4, sets={**self.sets, "parallel.pipeline": 4})
        for text in ("run tiny_k3 in", "step 1/3", "step 3/3", "stage short: 2 steps", "stage long: steps 3-3", "finished at step 3"):
            self.assertEqual(1, result.stdout.count(text), f"'{text}' in {result}")
        self.assertEqual("", result.stderr)

    def test_a_run_is_not_overwritten_unasked(self):
        run_dir = self.folder / "existing"
        self.train(RECIPE, run_dir, sets=self.sets, flags=["--stop-at-step", 2])
        before = (run_dir / "metrics.jsonl").read_text()
        result = self.train(RECIPE, run_dir, ranks=2, sets={**self.sets, "parallel.data": 2}, code=2)
        self.assertEqual(1, len(result.messages), result)
        for text in (str(run_dir), "checkpoint of step 2", "--resume", "--overwrite"):
            self.assertIn(text, result.stderr)
        self.assertEqual(before, (run_dir / "metrics.jsonl").read_text())
        weights = run_files.checkpoint(run_dir, 2)
        self.train(RECIPE, run_dir, sets=self.sets, flags=["--init-from", weights], code=2)
        self.assertEqual(before, (run_dir / "metrics.jsonl").read_text())
        self.train(RECIPE, run_dir, sets={**self.sets, "stages.0.steps": 1}, flags=["--overwrite"])
        self.assertEqual([1, 2], [event["step"] for event in run_files.events(run_dir, "step")])
        self.assertEqual(["latest", "step_00000001", "step_00000002"], run_files.checkpoint_names(run_dir))

    def test_run_directory_that_cannot_be_made(self):
        (self.folder / "a_file").write_text("not a folder")
        result = self.refused("unused", "a_file/run", "Not a directory", "--run-dir", code=2, ranks=1,
                              run_dir=self.folder / "a_file" / "run")
        self.assertNotIn("terminate called", result.stderr)

    def test_what_this_version_cannot_do(self):
        self.refused("context", "parallel.context", "not available in this version", code=2, sets={"parallel.context": 2})
        self.refused("virtual", "parallel.virtual_pipeline", "not available in this version", code=2,
                     sets={"parallel.pipeline": 2, "parallel.virtual_pipeline": 2})

    def test_a_rank_that_never_starts(self):
        # Rank 1 comes to mpirun and not to MPI: the other must not wait for ever.
        run_dir = self.folder / "half"
        command = driver.command_of_train(RECIPE, run_dir, 1, {**self.sets, "parallel.data": 2, "runtime.watchdog_seconds": 4})
        result = driver.run([*command, ":", "-n", 1, "sleep", 120], timeout=100)
        self.assertEqual(4, result.code, result)
        self.assertIn("rank 0", result.stderr)
        self.assertIn("waiting for all ranks to start MPI", result.stderr)
        self.assertFalse(run_dir.exists())

    def test_cuda_without_a_gpu(self):
        env = {"CUDA_VISIBLE_DEVICES": ""}
        result = self.train(RECIPE, self.folder / "no_gpu", ranks=2, sets={**self.sets, "parallel.data": 2, "runtime.backend": "cuda"}, code=3, env=env)
        self.assertEqual(1, len(result.messages), result)
        for text in ("runtime.backend is cuda", "no GPU", "runtime.backend=cpu"):
            self.assertIn(text, result.stderr)
        self.assertFalse((self.folder / "no_gpu").exists())

    def test_hang_ends_by_the_watchdog(self):
        run_dir = self.folder / "hang"
        sets = {**self.sets, "stages.0.steps": 100000, "parallel.data": 2, "runtime.watchdog_seconds": 8}
        with driver.Process(driver.command_of_train(RECIPE, run_dir, 2, sets)) as process:
            driver.wait_until(lambda: len(run_files.steps(run_dir)) >= 2, timeout=180, what="step 2")
            driver.send(process.ranks()[1], signal.SIGSTOP)
            result = process.wait(90)
        self.assertEqual(124, result.code, result)
        self.assertIn("rank 0", result.stderr)  # the rank that waits says where


class Data(ErrorCase):
    def damaged(self, name, change):
        """A copy of the corpus on which change(bin, idx) has worked."""
        for suffix in ("bin", "idx"):
            shutil.copy(self.folder / f"corpus.{suffix}", self.folder / f"{name}.{suffix}")
        change(self.folder / f"{name}.bin", self.folder / f"{name}.idx")
        return {"parallel.data": 2, "data.train.0.path": self.folder / name}

    def test_missing_file(self):
        self.refused("missing", "no token file", str(self.folder / "nothing_here"), code=6,
                     sets={"parallel.data": 2, "data.train.0.path": self.folder / "nothing_here"})
        self.refused("missing_validation", "no token file", str(self.folder / "nothing_here"), code=6,
                     sets={"parallel.data": 2, "data.validation.0.path": self.folder / "nothing_here"})

    def test_damaged_files(self):
        damages = {
            "index_cut_off": (lambda data, index: os.truncate(index, 100), "index_cut_off.idx"),
            "tokens_cut_off": (lambda data, index: os.truncate(data, 1000), "tokens_cut_off"),
            "not_an_index": (lambda data, index: index.write_bytes(b"something else entirely, but long enough to be read"), "not_an_index.idx"),
            "no_tokens": (lambda data, index: data.unlink(), "no_tokens"),
        }
        for name, (change, text) in damages.items():
            with self.subTest(name):
                self.refused(name, text, code=6, sets=self.damaged(name, change))

    def test_token_outside_the_vocabulary(self):
        def spoil(data, _):
            with data.open("r+b") as file:
                file.seek(2 * 4001)
                file.write(struct.pack("<H", 300))

        sets = {**self.damaged("outside", spoil), "stages.0.steps": 40}
        # Found when the file is opened or when the token is read, before it is trained on.
        result = self.train(RECIPE, self.folder / "outside_run", ranks=2, sets={**self.sets, **sets}, code=6)
        self.assertEqual(1, len(result.messages), result)
        for text in ("outside", "300", "257", "document"):
            self.assertIn(text, result.stderr)


class Checkpoints(ErrorCase):
    def test_missing_checkpoint(self):
        for flag in ("--resume-from", "--init-from"):
            with self.subTest(flag):
                result = self.train(RECIPE, self.folder / "none", ranks=2, sets={**self.sets, "parallel.data": 2}, code=5,
                                    flags=[flag, self.folder / "no_checkpoint"])
                self.assertEqual(1, len(result.messages), result)
                self.assertIn("no_checkpoint", result.stderr)
                self.assertFalse((self.folder / "none").exists())  # a mistyped path leaves no run behind

    def test_checkpoint_of_another_model(self):
        run_dir = self.folder / "other_model"
        self.train(RECIPE, run_dir, sets=self.sets, flags=["--stop-at-step", 1])
        saved = run_files.checkpoint(run_dir, 1)
        for name, sets, text in (("wider", {"model.intermediate_size": 80}, "model/model.layers.0.mlp"),
                                 ("fewer_experts", {"model.num_experts": 4}, "gate.weight"),
                                 ("deeper", {"model.first_k_dense_replace": 2}, "model/model.layers.1")):
            with self.subTest(name):
                result = self.train(RECIPE, self.folder / name, ranks=2, sets={**self.sets, "parallel.data": 2, **sets}, code=5,
                                    flags=["--init-from", saved])
                self.assertEqual(1, len(result.messages), result)
                self.assertIn(text, result.stderr)


class Divergence(ErrorCase):
    def test_infinite_loss_stops_before_the_update(self):
        run_dir = self.folder / "diverged"
        sets = {**self.sets, "parallel.data": 2, "stages.0.steps": 20, "checkpoint.every_steps": 1, "checkpoint.keep": 20,
                "validation.every_steps": 0, "optimizer.learning_rate": 1e36, "optimizer.warmup_steps": 0, "optimizer.clip_norm": 0}
        result = self.train(RECIPE, run_dir, ranks=2, sets=sets, code=9)
        self.assertEqual(1, len(result.messages), result)
        self.assertIn("must be finite", result.stderr)
        lines = run_files.steps(run_dir)
        self.assertTrue(lines)
        for line in lines.values():
            self.assertTrue(math.isfinite(line["loss"]) and math.isfinite(line["grad_norm"]), line)
        last = max(lines)
        self.assertIn(f"step {last + 1} of stage short", result.stderr)
        self.assertEqual(f"step_{last:08d}", run_files.checkpoint_names(run_dir)[-1])  # of the last good step
        self.assertEqual([], run_files.events(run_dir, "end"))


del ErrorCase

if __name__ == "__main__":
    driver.main()
