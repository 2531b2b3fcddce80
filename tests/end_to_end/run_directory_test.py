"""The run directory is what scripts and reports read: the files of the contract, one JSON object a line in
metrics.jsonl with the promised keys, and an index.h5 that other programs open."""

import json
import math

import corpus
import driver
import run_files
from run_files import h5py, np

RECIPE = driver.RECIPES / "tiny_k3.yaml"
NUMBER = (int, float)
STEP_KEYS = {
    "step": int, "stage": str, "sequence_length": int, "loss": NUMBER, "grad_norm": NUMBER, "learning_rate": NUMBER, "tokens": int,
    "tokens_per_second": NUMBER, "step_ms": NUMBER, "peak_memory_bytes": int, "tflops_per_rank": NUMBER, "mfu": (int, float, type(None)),
    "moe_max_violation": NUMBER,
}
OTHER_KEYS = {
    "header": {"name": str, "world_size": int, "backend": str, "parameters": int, "active_parameters": int, "total_steps": int,
               "total_tokens": int, "causal": bool, "versions": dict, "build": str, "recipe": str},
    "validation": {"step": int, "stage": str, "tokens": int, "loss": NUMBER, "bits_per_byte": NUMBER},
    "stage": {"stage": str, "sequence_length": int, "first_step": int, "last_step": int},
    "checkpoint": {"step": int, "path": str, "bytes": int, "seconds": NUMBER},
    "resume": {"step": int, "checkpoint": str},
    "warning": {"message": str},
    "end": {"step": int, "tokens": int, "reason": str},
}


class RunDirectory(driver.TestCase):
    """One run of two ranks: stopped after step 5 between two saves, hurt, and resumed from step 3."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = corpus.prepare(cls.folder)
        cls.sets = {"stages.0.steps": 6, "stages.1.steps": 3, "checkpoint.every_steps": 3, "validation.every_steps": 2, "validation.tokens": 1024,
                    "parallel.pipeline": 2, **corpus.data_sets(f"{prefix}_train", f"{prefix}_validation")}
        cls.run_dir = cls.folder / "run"
        cls.train(RECIPE, cls.run_dir, ranks=2, sets=cls.sets, flags=["--stop-at-step", 5])
        (run_files.checkpoint(cls.run_dir, 5) / "manifest.json").unlink()
        cls.result = cls.train(RECIPE, cls.run_dir, ranks=2, sets=cls.sets, flags=["--resume"])

    def test_files(self):
        self.assertEqual({"recipe.yaml", "metrics.jsonl", "log.txt", "checkpoints"}, {path.name for path in self.run_dir.iterdir()})
        self.assertEqual("step_00000009\n", (self.run_dir / "checkpoints" / "latest").read_text())
        files = {path.name for path in run_files.checkpoint(self.run_dir, 9).iterdir()}
        self.assertEqual({"index.h5", "manifest.json", "rank_00000.h5", "rank_00001.h5"}, files)
        log = (self.run_dir / "log.txt").read_text()
        for text in ("stage short", "step 9/9", "validation at step", "skipped incomplete step_00000005", "finished at step 9"):
            self.assertIn(text, log)
        # What became of the tokens: the packing drops and pads none.
        self.assertIn(f"data: {512 * 6 + 1024 * 3} tokens used", log)
        self.assertIn("; 0 dropped, 0 padded;", log)

    def test_recipe_can_be_run_again(self):
        text = (self.run_dir / "recipe.yaml").read_text()
        printed = driver.run(driver.command_of_train(self.run_dir / "recipe.yaml", ranks=None, flags=["--print-recipe"]))
        self.assertEqual(0, printed.code, printed)
        self.assertEqual(text, printed.stdout)
        self.assertEqual(text, run_files.events(self.run_dir, "header")[-1]["recipe"])

    def check_keys(self, event, keys):
        for key, kind in keys.items():
            self.assertIn(key, event)
            self.assertIsInstance(event[key], kind, f"{key} of {event}")
            self.assertEqual(kind is bool, isinstance(event[key], bool), f"{key} of {event}")
            if isinstance(event[key], float):
                self.assertTrue(math.isfinite(event[key]), f"{key} of {event}")

    def test_step_lines(self):
        lines = run_files.events(self.run_dir, "step")
        # Steps 4 and 5 were made twice: the file goes on, and the last line of a step wins.
        self.assertEqual([1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9], [line["step"] for line in lines])
        for line in lines:
            self.check_keys(line, STEP_KEYS)
            self.assertGreater(line["tokens_per_second"], 0)
            self.assertGreater(line["tflops_per_rank"], 0)
            self.assertGreater(line["peak_memory_bytes"], 1 << 20)
            self.assertEqual(("short", 64) if line["step"] <= 6 else ("long", 256), (line["stage"], line["sequence_length"]))
        steps = run_files.steps(self.run_dir)
        self.assertEqual([512 * min(step, 6) + 1024 * max(step - 6, 0) for step in steps], [line["tokens"] for line in steps.values()])

    def test_other_lines(self):
        events = run_files.events(self.run_dir)
        self.assertEqual(set(OTHER_KEYS) | {"step"}, {event["type"] for event in events})
        for event in events:
            if event["type"] != "step":
                self.check_keys(event, OTHER_KEYS[event["type"]])
        kinds = [event["type"] for event in events]
        self.assertEqual(("header", "end"), (kinds[0], kinds[-1]))
        self.assertEqual(["stop_at_step", "finished"], [event["reason"] for event in events if event["type"] == "end"])
        self.assertEqual([3], [event["step"] for event in events if event["type"] == "resume"])
        checkpoints = [event["step"] for event in events if event["type"] == "checkpoint"]
        self.assertEqual([3, 5, 6, 9], checkpoints)
        validations = {event["step"]: event for event in events if event["type"] == "validation"}
        self.assertEqual([2, 4, 6, 8, 9], sorted(validations))
        for event in validations.values():
            self.assertAlmostEqual(event["loss"] / math.log(2), event["bits_per_byte"], places=12)

    def test_index_opens_in_other_programs(self):
        directory = run_files.checkpoint(self.run_dir, 9)
        with h5py.File(directory / "index.h5", "r") as file:
            self.assertEqual((9, 512 * 6 + 1024 * 3), (file.attrs["step"], file.attrs["tokens"]))
            for name, wanted in (("stage", "long"), ("recipe", (self.run_dir / "recipe.yaml").read_text())):
                value = file.attrs[name]
                self.assertEqual(wanted, value.decode() if isinstance(value, bytes) else value)
            self.assertIn("hdf5", json.loads(file.attrs["versions"]))
        tensors = run_files.tensors(directory)
        self.assertEqual((257, 32), tensors["model/model.embed_tokens.weight"].shape)
        for name, tensor in tensors.items():
            self.assertTrue(np.all(np.isfinite(tensor)), f"{name} has values that are not finite, as a missing piece would")
        moments = [name for name in tensors if name.startswith("optimizer/")]
        self.assertEqual(2 * len([name for name in tensors if name.startswith("model/") and not name.endswith("e_score_correction_bias")]), len(moments))


if __name__ == "__main__":
    driver.main()
