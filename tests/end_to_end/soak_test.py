"""Two hundred steps with two data ranks that share their experts, on documents of all lengths: collectives of the routing
and of the gradients must never meet in another order on another rank. Elsewhere such hangs came after 92 to 852 steps.
LONGHAUL_SOAK_STEPS runs longer."""

import os

import corpus
import driver
import run_files

STEPS = int(os.environ.get("LONGHAUL_SOAK_STEPS", "200"))


class Soak(driver.TestCase):
    def test_many_small_steps(self):
        prefix = corpus.write_megatron(self.folder / "corpus", corpus.mixed_documents(total=40000))
        sets = {"stages.0.steps": STEPS, "stages.0.sequence_length": 32, "stages.0.global_batch_tokens": 128, "stages.1.steps": 5,
                "parallel.data": 2, "parallel.expert": 2, "balance.sync_every_steps": 3, "validation.every_steps": 0, "validation.tokens": 512,
                "runtime.watchdog_seconds": 60, **corpus.data_sets(prefix, prefix)}
        run_dir = self.folder / "run"
        self.train(driver.RECIPES / "tiny_k3.yaml", run_dir, ranks=2, sets=sets, timeout=300 + STEPS)
        steps = run_files.steps(run_dir)
        self.assertEqual(STEPS + 5, len(steps))
        self.assertLess(steps[STEPS]["loss"], steps[1]["loss"] - 1)


if __name__ == "__main__":
    driver.main()
