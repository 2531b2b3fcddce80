"""Checkpoints that something happened to: a byte, a file, the disk, the directory. Each is a clear error with exit code 5, by
`convert verify` and by a load, or a recovery that is told; the last good checkpoint is intact. And what other programs see of a
checkpoint: h5py reads the tensors that an export holds, h5ls lists them.
"""

import json
import os
import random
import shutil
import struct
import subprocess

import corpus
import driver
import run_files
from run_files import h5py, np

RECIPE = driver.RECIPES / "tiny_k3.yaml"
SETTINGS = {
    "stages.0.steps": 8,
    "stages.0.global_batch_tokens": 128,
    "stages.1.steps": 2,
    "stages.1.global_batch_tokens": 512,
    "checkpoint.every_steps": 2,
    "checkpoint.keep": 20,
    "validation.every_steps": 0,
    "validation.tokens": 512,
    "runtime.deterministic": "true",
}
TWO_RANKS = {"parallel.data": 2, "parallel.expert": 2}


def safetensors(folder):
    """{name: float32 array} of an export with --dtype fp32."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                assert entry["dtype"] == "F32", (name, entry["dtype"])
                found[name] = np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return found


class CheckpointCase(driver.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {**SETTINGS, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}

    def copy(self, source, name):
        target = self.folder / name
        shutil.copytree(source, target)
        return target


class Damage(CheckpointCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_dir = cls.folder / "run"
        cls.train(RECIPE, cls.run_dir, ranks=2, sets={**cls.sets, **TWO_RANKS}, flags=["--stop-at-step", 4])
        driver.convert("verify", cls.run_dir)

    def refused(self, name, damage, *texts):
        """Damages a copy of the newest checkpoint: verify and a resume both end with exit code 5 and say what it is."""
        run_dir = self.copy(self.run_dir, name)
        directory = run_files.checkpoint(run_dir, 4)
        damage(directory)
        verified = driver.convert("verify", directory, code=5)
        loaded = self.train(RECIPE, run_dir, ranks=2, sets={**self.sets, **TWO_RANKS}, flags=["--resume-from", directory], code=5)
        self.assertEqual(1, len(loaded.messages), loaded)
        for text in texts:
            self.assertIn(text, verified.stderr)
            self.assertIn(text, loaded.messages[0])
        self.assertEqual(4, max(run_files.steps(run_dir)))
        shutil.rmtree(run_dir)

    def test_a_flipped_byte_anywhere(self):
        rng = random.Random(3)
        for number in range(8):
            file = rng.choice(["rank_00000.h5", "rank_00001.h5", "index.h5", "manifest.json"])

            def flip(directory):
                with (directory / file).open("r+b") as opened:
                    at = rng.randrange((directory / file).stat().st_size)
                    opened.seek(at)
                    byte = opened.read(1)[0]
                    opened.seek(at)
                    opened.write(bytes([byte ^ (1 << rng.randrange(8))]))

            with self.subTest(file):
                self.refused(f"flipped_{number}", flip, file)

    def test_a_flipped_byte_of_a_tensor_names_it(self):
        def flip(directory):
            with h5py.File(directory / "rank_00001.h5", "r") as file:
                offset = file[self.expert_tensor(file)].id.get_offset()
            with (directory / "rank_00001.h5").open("r+b") as opened:
                opened.seek(offset + 5)
                byte = opened.read(1)[0]
                opened.seek(offset + 5)
                opened.write(bytes([byte ^ 1]))

        with h5py.File(run_files.checkpoint(self.run_dir, 4) / "rank_00001.h5", "r") as file:
            name = self.expert_tensor(file)
        self.refused("flipped_tensor", flip, "rank_00001.h5", f'damaged in tensor "{name}"')

    @staticmethod
    def expert_tensor(file):
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and "experts" in name else None)
        return sorted(names)[-1]

    def test_truncated_missing_and_swapped_files(self):
        def swap(directory):
            for source, target in (("rank_00000.h5", "aside"), ("rank_00001.h5", "rank_00000.h5"), ("aside", "rank_00001.h5")):
                os.rename(directory / source, directory / target)

        self.refused("truncated", lambda directory: os.truncate(directory / "rank_00001.h5", 5000), "rank_00001.h5")
        self.refused("missing", lambda directory: (directory / "rank_00000.h5").unlink(), "rank_00000.h5")
        self.refused("swapped", swap, "rank_0000")
        # A rank file of another step has the right structure and size.
        older = run_files.checkpoint(self.run_dir, 2) / "rank_00001.h5"
        self.refused("mixed", lambda directory: shutil.copy(older, directory), "rank_00001.h5")

    def test_other_programs_read_it(self):
        exported = self.folder / "exported"
        driver.convert("export", "--from", self.run_dir, "--to", exported, "--dtype", "fp32")
        released = safetensors(exported)
        compared = 0
        with h5py.File(run_files.checkpoint(self.run_dir, 4) / "index.h5", "r") as index:
            prefix = "language_model."
            for name, values in released.items():
                ours = "model/" + name.removeprefix(prefix)
                if ours in index and index[ours].shape == values.shape:
                    self.assertEqual(index[ours][()].tobytes(), values.tobytes(), name)
                    compared += 1
        self.assertGreater(compared, 100)
        if shutil.which("h5ls") is None:
            self.skipTest("h5ls is not installed (hdf5-tools)")
        directory = run_files.checkpoint(self.run_dir, 4)
        listing = subprocess.run(["h5ls", "-r", "index.h5"], cwd=directory, capture_output=True, text=True, check=True)
        self.assertIn("/model/model.layers.0.mlp.down_proj.weight Dataset {32, 64}", listing.stdout)
        self.assertEqual("", listing.stderr)
        print(f"[{compared} of {len(released)} exported tensors compared through h5py]", end=" ", flush=True)


class Retention(CheckpointCase):
    def test_newest_major_and_ends_of_stages_are_kept(self):
        run_dir = self.folder / "retention"
        sets = {**self.sets, "checkpoint.every_steps": 1, "checkpoint.keep": 2, "checkpoint.major_every": 3, "checkpoint.async": "true"}
        self.train(RECIPE, run_dir, sets=sets)
        # 3, 6 and 9 are major, 8 and 10 end a stage; of the others the newest two remain.
        self.assertEqual(["latest"] + [f"step_{step:08d}" for step in (3, 5, 6, 7, 8, 9, 10)], run_files.checkpoint_names(run_dir))
        for step in (3, 7, 10):
            driver.convert("verify", run_files.checkpoint(run_dir, step))


class Disk(CheckpointCase):
    """Inside a mount namespace of its own, where any user may mount."""

    def in_namespace(self, script, asynchronous, compression="none"):
        """Runs shell commands; train is "$@". Returns what they printed."""
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
            self.skipTest("namespaces are not allowed here")
        sets = {**self.sets, "checkpoint.async": asynchronous, "checkpoint.keep": 1, "checkpoint.compression": compression}
        train = driver.command_of_train(RECIPE, "$RUN", None, sets)
        where = self.folder / f"mount_{asynchronous}_{len(list(self.folder.iterdir()))}"
        where.mkdir()
        text = " ".join(f"'{part}'" if str(part) != "$RUN" else '"$RUN"' for part in train)
        return driver.run(["unshare", "-rm", "sh", "-c", f'set -u; cd "{where}"; RUN="{where}/run"; train() {{ {text} "$@"; }}; {script}'])

    def test_full_disk(self):
        # A checkpoint has 3.2 MB, 2.9 MB compressed: two do not fit, and the one before a save is removed after it.
        for asynchronous, compression in (("false", "none"), ("true", "none"), ("false", "zstd"), ("true", "zstd")):
            with self.subTest(asynchronous=asynchronous, compression=compression):
                result = self.in_namespace(
                    'mount -t tmpfs -o size=5m none "$PWD" && cd "$PWD" && train; echo "exit $?"; ls -A run/checkpoints; '
                    f'"{driver.program("convert")}" verify run; echo "verify $?"; df . | tail -n 1', asynchronous, compression)
                self.assertIn("exit 5", result.stdout, result)
                self.assertEqual(1, len(result.messages), result)
                for text in ("step_00000004", "No space left on device"):
                    self.assertIn(text, result.messages[0])
                left = [line for line in result.stdout.splitlines() if line == "latest" or ("step_" in line and " " not in line)]
                self.assertEqual(["latest", "step_00000002"], left)
                self.assertIn("verify 0", result.stdout, result)

    def test_read_only_directory(self):
        for asynchronous in ("false", "true"):
            with self.subTest(asynchronous=asynchronous):
                result = self.in_namespace(
                    'train --stop-at-step 2 > first.txt || cat first.txt; mount --bind run/checkpoints run/checkpoints; '
                    'mount -o remount,ro,bind run/checkpoints; train --resume; echo "exit $?"; '
                    f'"{driver.program("convert")}" verify run; echo "verify $?"', asynchronous)
                self.assertIn("exit 5", result.stdout, result)
                self.assertEqual(1, len(result.messages), result)
                self.assertIn("Read-only file system", result.messages[0])
                self.assertIn("checkpoints", result.messages[0])
                self.assertIn("verify 0", result.stdout, result)

    def test_the_directory_of_checkpoints_goes_away(self):
        # Moved aside by somebody while training goes on: the next save makes it anew, and what was moved is whole.
        run_dir = self.folder / "moved"
        sets = {**self.sets, "stages.0.steps": 400, "checkpoint.every_steps": 20, "checkpoint.async": "true"}
        with driver.Process(driver.command_of_train(RECIPE, run_dir, 2, {**sets, **TWO_RANKS}, ["--stop-at-step", 80])) as process:
            driver.wait_until(lambda: (run_dir / "checkpoints" / "latest").exists(), what="the first checkpoint", timeout=120)
            os.rename(run_dir / "checkpoints", self.folder / "aside")
            result = process.wait(300)
        if result.code == 5:  # it went away in the middle of a save
            self.assertEqual(1, len(result.messages), result)
            self.assertIn("checkpoints", result.messages[0])
        else:
            self.assertEqual(0, result.code, result)
            driver.convert("verify", run_files.checkpoint(run_dir, 80))
        driver.convert("verify", self.folder / "aside" / "step_00000020")


del CheckpointCase

if __name__ == "__main__":
    driver.main()
