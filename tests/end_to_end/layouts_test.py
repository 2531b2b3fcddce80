"""The same recipe on other layouts trains the same model: losses, gradient norms, routing and final weights agree with
those of one rank, for pipeline, data and expert parallelism, their combination, and other micro-batch sizes, on packed
documents of very different lengths. The backbone of the acceptance: a rank that counts a gradient twice, loses one at
a cut, or divides by the wrong number of tokens shows here."""

import unittest

import corpus
import driver
import run_files

# Every sum over tokens or ranks is done in double on the CPU, and rounded once; what remains is that a double sum in
# another order can round to another float, which later steps amplify. Losses agree to 1e-15 or so in practice. 1e-7 is
# an ulp of a float: a sum that has slipped back into float, or any real error, is larger than that.
TOLERANCE = 1e-7

LAYOUTS = {
    "pipeline 2": (2, {"parallel.pipeline": 2}),
    "data 2": (2, {"parallel.data": 2}),
    "data 2, expert 2": (2, {"parallel.data": 2, "parallel.expert": 2}),
    "pipeline 2 x data 2, expert 2": (4, {"parallel.pipeline": 2, "parallel.data": 2, "parallel.expert": 2, "parallel.micro_batch_tokens": 128}),
    "micro-batches of 256 tokens": (1, {"parallel.micro_batch_tokens": 256}),
}


class LayoutCase(driver.TestCase):
    recipe = None
    layouts = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        documents = corpus.mixed_documents()
        if min(map(len, documents)) != 1:
            raise AssertionError("the corpus should have documents of one token")
        train = corpus.write_megatron(cls.folder / "train", documents)
        validation = corpus.write_megatron(cls.folder / "validation", corpus.mixed_documents(seed=99, total=3000))
        cls.data = {**corpus.data_sets(train, validation), "validation.tokens": 2048}
        cls.one = cls.folder / "one_rank"
        cls.train(cls.recipe, cls.one, sets=cls.data)

    def check_layout(self, name):
        ranks, sets = self.layouts[name]
        run_dir = self.folder / name.replace(" ", "_")
        self.train(self.recipe, run_dir, ranks=ranks, sets={**self.data, **sets})
        self.assertEqual(20, len(run_files.steps(run_dir)))
        self.check_equal(run_dir)

    def check_equal(self, run_dir):
        worst, place = run_files.worst_difference(self.one, run_dir, ("loss", "grad_norm", "moe_max_violation"))
        self.assertLess(worst, TOLERANCE, place)
        print(f"[differs by {worst:.1e} at most]", end=" ", flush=True)
        # With a pipeline only the last stage knows the loss; the log must show it all the same.
        losses = [event["loss"] for event in run_files.events(self.one, "validation")]
        others = [event["loss"] for event in run_files.events(run_dir, "validation")]
        self.assertEqual(len(losses), len(others))
        for a, b in zip(losses, others):
            self.assertLess(run_files.relative_difference(a, b), TOLERANCE, "validation loss")
        last = [run_files.checkpoint(run, 20) for run in (self.one, run_dir)]
        self.assertEqual(run_files.documents(last[0]), run_files.documents(last[1]))
        worst, place = run_files.worst_tensor_difference(*last)
        print(f"[weights {worst:.1e}]", end=" ", flush=True)
        self.assertLess(worst, 1e-5, place)  # AdamW turns a gradient near zero into a step of full size


def layout_tests(layouts):
    """One test method a layout, so that a report names it."""

    def decorate(cls):
        cls.layouts = layouts
        for name in layouts:
            identifier = "test_" + "".join(c if c.isalnum() else "_" for c in name)
            setattr(cls, identifier, lambda self, name=name: self.check_layout(name))
        return cls

    return decorate


# Two micro-batches in the first stage, fewer than the pipeline has stages, and four in the second.
@layout_tests({**LAYOUTS, "pipeline 4": (4, {"parallel.pipeline": 4, "parallel.micro_batch_tokens": 256})})
class TinyK3(LayoutCase):
    recipe = driver.RECIPES / "tiny_k3.yaml"

    def test_training_is_worth_comparing(self):
        steps = run_files.steps(self.one)
        self.assertLess(steps[20]["loss"], steps[1]["loss"] - 0.3)
        self.assertGreater(steps[2]["moe_max_violation"], 0)

    def test_validation_between_steps_changes_nothing(self):
        run_dir = self.folder / "validation_every_step"
        self.train(self.recipe, run_dir, sets={**self.data, "validation.every_steps": 3, "validation.tokens": 512})
        last = [run_files.checkpoint(run, 20) for run in (self.one, run_dir)]
        self.assertEqual([], run_files.bitwise_differences(*last))

    def test_two_deterministic_runs_agree_bitwise(self):
        sets = {**self.data, "parallel.pipeline": 2, "parallel.data": 2, "parallel.expert": 2, "runtime.deterministic": "true"}
        runs = [self.folder / f"deterministic_{i}" for i in range(2)]
        for run_dir in runs:
            self.train(self.recipe, run_dir, ranks=4, sets=sets)
        self.assertEqual([], run_files.metric_differences(*runs))
        for step in (14, 20):
            self.assertEqual([], run_files.bitwise_differences(*(run_files.checkpoint(run, step) for run in runs)))
        self.check_equal(runs[0])


@layout_tests({**LAYOUTS, "pipeline 3": (3, {"parallel.pipeline": 3})})
class TinyKimiLinear(LayoutCase):
    recipe = driver.RECIPES / "tiny_kimi_linear.yaml"


del LayoutCase  # unittest would run it by itself

if __name__ == "__main__":
    driver.main()
