"""Runs the real programs for the end-to-end tests: train under mpirun, prepare, convert.

A test script is a unittest module that ends with driver.main(). CTest passes --bin and --mpiexec; by hand:

    /usr/bin/python3 tests/end_to_end/layouts_test.py --bin build/bin [TestClass.test_name]

Every run has a time limit and is ended with its whole process tree when the test ends, so that a hang is a failure
and never a leftover process.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RECIPES = SOURCE / "recipes"

# lh_add_command_test sets most of these too; they are repeated so that a script runs by hand in the same way. Ranks are
# not bound to cores: several tests run at once, and each mpirun would bind its first rank to the same core.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}

settings = argparse.Namespace(bin=SOURCE / "build" / "bin", mpiexec="mpirun")


class Result:
    """What a process left: exit code, output, and how long it took."""

    def __init__(self, command, code, stdout, stderr, seconds):
        self.command, self.code, self.stdout, self.stderr, self.seconds = command, code, stdout, stderr, seconds

    @property
    def output(self):
        return self.stdout + self.stderr

    @property
    def messages(self):
        """The error messages of the program: one line prefix a failing rank, or of a command without MPI."""
        starts = ("[rank ", "train: ", "prepare: ", "convert: ")
        return [line for line in self.stderr.splitlines() if line.startswith(starts)]

    def __str__(self):
        command = " ".join(map(str, self.command))
        return f"{command}\nexit code {self.code} after {self.seconds:.1f} s\n--- stdout\n{self.stdout[-3000:]}\n--- stderr\n{self.stderr[-3000:]}"


class Process:
    """A started program. Use as a context manager: it does not outlive the block."""

    def __init__(self, command, env=None, cwd=None):
        self.command = [str(part) for part in command]
        self.started = time.monotonic()
        # Files instead of pipes: nothing blocks when a process writes much while the test waits for something else.
        self._stdout, self._stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        environment = {**os.environ, **ENVIRONMENT, **(env or {})}
        self.popen = subprocess.Popen(self.command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self._stdout,
                                      stderr=self._stderr, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self._stdout.close()
        self._stderr.close()

    def wait(self, timeout=300):
        try:
            code = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"no end within {timeout} s: {self._result(None)}") from None
        return self._result(128 - code if code < 0 else code)

    def _result(self, code):
        def read(file):
            file.seek(0)
            return file.read().decode(errors="replace").replace("\r", "\n").replace("\033[K", "")

        return Result(self.command, code, read(self._stdout), read(self._stderr), time.monotonic() - self.started)

    def end(self):
        """Ends what still runs: mpirun passes TERM on as KILL to its ranks; ranks that outlive it are killed here."""
        ranks = list(self.ranks().values())
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        for pid in ranks:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def ranks(self):
        """{rank: process id} of the ranks that this mpirun has started and that still run."""
        found = {}
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent != self.popen.pid:
                    continue
                for variable in (entry / "environ").read_bytes().split(b"\0"):
                    if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(variable.split(b"=")[1])] = int(entry.name)
            except (OSError, ValueError, IndexError):
                continue  # it ended meanwhile
        return found


def program(name):
    return pathlib.Path(settings.bin) / name


def command_of_train(recipe, run_dir=None, ranks=1, sets=None, flags=()):
    """mpirun -n RANKS train --recipe ...; ranks=None starts the program alone."""
    command = [] if ranks is None else [settings.mpiexec, "-n", str(ranks)]
    command += [program("train"), "--recipe", recipe]
    if run_dir is not None:
        command += ["--run-dir", run_dir]
    for key, value in (sets or {}).items():
        command += ["--set", f"{key}={value}"]
    return command + list(flags)


def run(command, timeout=300, env=None, cwd=None):
    with Process(command, env, cwd) as process:
        return process.wait(timeout)


class TestCase(unittest.TestCase):
    """A temporary folder for the class, and runs whose exit code is checked."""

    maxDiff = None
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul_e2e_"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    @classmethod
    def train(cls, recipe, run_dir=None, *, ranks=1, sets=None, flags=(), code=0, timeout=300, env=None, cwd=None):
        result = run(command_of_train(recipe, run_dir, ranks, sets, flags), timeout, env, cwd)
        if result.code != code:
            raise AssertionError(f"expected exit code {code}: {result}")
        return result


def convert(*arguments, code=0):
    result = run([program("convert"), *arguments])
    if result.code != code:
        raise AssertionError(f"expected exit code {code}: {result}")
    return result


def send(pid, number):
    os.kill(pid, number)


def is_running(pid):
    """False for a process that has ended, also when nobody has collected its exit code yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, timeout=60, what="the condition"):
    """Polls; returns the first true value."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {timeout} s")


def main():
    parser = argparse.ArgumentParser(description="end-to-end tests; further arguments go to unittest")
    parser.add_argument("--bin", default=settings.bin, type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--mpiexec", default=settings.mpiexec, help="mpirun of the MPI that the programs use")
    _, rest = parser.parse_known_args(namespace=settings)
    settings.bin = settings.bin.resolve()
    unittest.main(argv=[sys.argv[0], "-v", *rest])
