"""exchange_bench, on CPU ranks: what it reports adds up, and what it cannot do it says once."""

import json

import driver

TOKENS, TOP_K, WIDTH = 512, 2, 16
SIZES = ["--tokens", str(TOKENS), "--top-k", str(TOP_K), "--width", str(WIDTH), "--experts", "8", "--rounds", "3"]


def bench(ranks, *more):
    return driver.run([driver.settings.mpiexec, "-n", str(ranks), driver.program("exchange_bench"), *SIZES, *more])


class ExchangeBench(driver.TestCase):
    def test_bytes_of_two_ranks(self):
        result = bench(2, "--backend", "cpu", "--json")
        self.assertEqual(0, result.code, result)
        even, skewed = map(json.loads, result.stdout.splitlines())
        half = TOKENS * TOP_K // 2 * WIDTH * 4  # of the rows of a rank, in fp32
        self.assertEqual([half, half], [even["plain_sent_bytes"], skewed["plain_sent_bytes"]])
        # Routes are drawn at random: about half of the rows leave each rank. With popular experts on rank 0, more leave rank 1.
        self.assertTrue(0.9 * half < even["largest_sent_bytes"] < 1.2 * half, even)
        self.assertTrue(1.2 * half < skewed["largest_sent_bytes"] < 2 * half, skewed)
        for line in (even, skewed):
            for what in ("dispatch", "rows", "combine", "plain"):
                self.assertGreater(line[f"{what}_seconds"], 0, line)

    def test_refusals(self):
        for ranks, text in ((1, "start at least two"), (3, "a divisor of --experts 8")):
            result = bench(ranks, "--backend", "cpu")
            self.assertEqual(2, result.code, result)
            self.assertEqual(1, result.stderr.count(text), result)
        self.assertEqual(2, bench(2, "--backend", "tpu").code)


if __name__ == "__main__":
    driver.main()
