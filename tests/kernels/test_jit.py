"""The compile cache tells the truth, and the kernels' threads and notices behave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from fedepm_fast import kernels
from fedepm_fast.kernels import _cache, _jit, _sources
from fedepm_fast.kernels._parts import room

SOURCES = Path(_jit.__file__).resolve().parent

CALLEE = """
from ._jit import device

FACTOR = 2.0


@device
def scale(x):
    return FACTOR * x
"""

RAISING = """
from ._jit import device


@device
def scale(x):
    if x < 0.0:
        raise OverflowError("too far", x, int(x * -2.0))
    return x
"""

CALLER = """
from . import callee
from ._jit import kernel


@kernel
def apply(x):
    return callee.scale(x) + 1.0
"""

FACTORY = """
from ._jit import device, kernel


def make(increment):
    step = device(lambda x: x + increment)

    @kernel
    def twice(x):
        return step(step(x))

    return twice


by_one, by_ten = make(1.0), make(10.0)
left, right = (lambda x: x - 1.0), (lambda x: x - 2.0)


def shifted(function):
    step = device(function)

    @kernel
    def shift(x):
        return step(x)

    return shift


by_left, by_right = shifted(left), shifted(right)
"""

REPORT = """
from fedepm_fast.kernels import _jit, caller, factory
values = [caller.apply(3.0), factory.by_one(0.0), factory.by_ten(0.0)]
values += [factory.by_left(0.0), factory.by_right(0.0)]
print(values, sorted(_jit._compiled))
"""

#: One kernel is enough where the place of its entry is the subject.
ONE = "from fedepm_fast.kernels import _jit, caller; print(caller.apply(3.0), _jit._compiled)"

#: A kernel outside the package, and the file that it calls a function of.
OWN = """
from fedepm_fast.kernels._jit import kernel
from theirs import halved


@kernel
def apply(x):
    return halved(x)
"""

THEIRS = """
from numba import njit

SHIFT = 1.0


@njit
def inner(x):
    return 0.5 * x + SHIFT


@njit
def halved(x):
    return inner(x) + 1.0
"""

ALL = ["apply", "make.<locals>.twice", "make.<locals>.twice"]
ALL += ["shifted.<locals>.shift", "shifted.<locals>.shift"]


class Copy:
    """The foundation of the kernels, with three modules of its own, in another place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kernels = root / "fedepm_fast" / "kernels"
        self.kernels.mkdir(parents=True)
        (root / "fedepm_fast" / "__init__.py").touch()
        for name in (
            "__init__",
            "_cache",
            "_extremes",
            "_identity",
            "_inlined",
            "_jit",
            "_passes",
            "_shorter",
            "_sources",
            "_uncounted",
            "_uninterrupted",
        ):
            shutil.copy(SOURCES / f"{name}.py", self.kernels)
        self.write("callee", CALLEE)
        self.write("caller", CALLER)
        self.write("factory", FACTORY)

    def write(self, module: str, text: str) -> None:
        (self.kernels / f"{module}.py").write_text(text)

    def run(self, program: str = REPORT, **environment: str) -> str:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
        # Bytecode goes by whole seconds and sizes, and files change here within one.
        clean |= {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"} | environment
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=clean,
            cwd=self.root,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def folders(self, module: str) -> list[Path]:
        root = self.kernels / "__pycache__" / "fedepm_fast"
        return sorted(root.glob(f"{module}-*"))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_warm_cache_compiles_nothing_and_sees_every_change(copy: Copy) -> None:
    values = [7.0, 2.0, 20.0, -1.0, -2.0]
    assert copy.run() == f"{values} {ALL}"
    assert copy.run() == f"{values} []"

    copy.write("callee", CALLEE.replace("2.0", "5.0"))
    assert copy.run() == f"{[16.0, *values[1:]]} ['apply']"
    copy.write("callee", CALLEE)
    assert copy.run() == f"{values} []"

    # Options live in one module that every kernel depends on.
    options = (copy.kernels / "_jit.py").read_text()
    copy.write("_jit", options.replace('"fastmath": False', '"fastmath": {"contract"}'))
    assert copy.run() == f"{values} {ALL}"


def test_a_kernel_of_ones_own_sees_changes_of_other_files(copy: Copy) -> None:
    theirs = copy.root / "theirs.py"
    program = (
        "import own; from fedepm_fast.kernels import _jit; print(own.apply(3.0), _jit._compiled)"
    )
    (copy.root / "own.py").write_text(OWN)
    for text, want in [
        (THEIRS, "3.5 ['apply']"),
        (THEIRS, "3.5 []"),
        (THEIRS.replace("0.5", "0.25"), "2.75 ['apply']"),
        (THEIRS.replace("SHIFT = 1.0", "SHIFT = 2.0"), "4.5 ['apply']"),
        (THEIRS.replace("@njit", "@njit(fastmath={'nnan', 'ninf'})"), "3.5 ['apply']"),
    ]:
        theirs.write_text(text)
        assert copy.run(program) == want


def test_a_process_that_an_edit_overtakes_leaves_the_cache_alone(copy: Copy) -> None:
    overtaken = f"""
from pathlib import Path
from fedepm_fast.kernels import _jit
path = Path({str(copy.kernels / "callee.py")!r})
text = path.read_text()
path.write_text(text.replace("2.0", "11.0"))
from fedepm_fast.kernels import caller
print(caller.apply(3.0))
path.write_text(text)
"""
    assert copy.run(overtaken) == "34.0"
    assert copy.run().startswith("[7.0,")


def test_options_in_force_and_processor_have_entries_of_their_own(copy: Copy) -> None:
    assert copy.run(ONE) == "7.0 ['apply']"
    assert copy.run(ONE, NUMBA_BOUNDSCHECK="1") == "7.0 ['apply']"
    assert copy.run(ONE, NUMBA_CPU_NAME="generic") == "7.0 ['apply']"
    assert copy.run(ONE) == "7.0 []"


def test_install_that_cannot_be_written_uses_the_users_cache(copy: Copy, tmp_path: Path) -> None:
    (copy.kernels / "__pycache__").write_text("not a folder")
    cache = tmp_path / "cache"
    for compiled in (["apply"], []):
        output = copy.run(ONE, XDG_CACHE_HOME=str(cache), LOCALAPPDATA=str(cache), HOME=str(cache))
        assert output == f"7.0 {compiled}"
    assert list(cache.rglob("apply-*.jit"))


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
@pytest.mark.parametrize("place", ["package", "chosen", "home"])
def test_others_may_read_what_is_not_in_ones_home(copy: Copy, tmp_path: Path, place: str) -> None:
    home = str(tmp_path / "home")
    given = {"XDG_CACHE_HOME": home, "HOME": home}
    if place == "chosen":
        given["NUMBA_CACHE_DIR"] = str(tmp_path / "chosen")
    elif place == "home":
        (copy.kernels / "__pycache__").write_text("not a folder")
    before = os.umask(0o002)  # others of a group might write, then
    try:
        assert copy.run(ONE, **given) == "7.0 ['apply']"
    finally:
        os.umask(before)
    (entry,) = tmp_path.rglob("apply-*.jit")
    others = 0o000 if place == "home" else 0o055
    for folder in (entry.parent, entry.parent.parent):
        assert folder.stat().st_mode & 0o077 == others


def test_numba_cache_dir_is_respected(copy: Copy, tmp_path: Path) -> None:
    assert copy.run(ONE, NUMBA_CACHE_DIR=str(tmp_path / "chosen")) == "7.0 ['apply']"
    assert list((tmp_path / "chosen").rglob("apply-*.jit"))
    assert not copy.folders("caller")


def test_code_that_was_made_for_others_is_read_and_never_written(
    copy: Copy, tmp_path: Path
) -> None:
    made, own = tmp_path / "made", tmp_path / "own"
    assert copy.run(ONE, NUMBA_CACHE_DIR=str(made)) == "7.0 ['apply']"
    entries = {path: path.read_bytes() for path in made.rglob("*.jit")}
    for path in (made, *made.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    times = {path: path.stat().st_mtime_ns for path in (made, *made.rglob("*"))}
    given = {"NUMBA_CACHE_DIR": str(own), "FEDEPM_FAST_KERNELS": str(made)}
    assert copy.run(ONE, **given) == "7.0 []"
    at_home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "FEDEPM_FAST_KERNELS": "~/made"}
    assert copy.run(ONE, **given | at_home) == "7.0 []"
    assert not list(own.rglob("*.jit"))
    # What is not there, for other sources or another processor, is compiled and kept elsewhere.
    copy.write("callee", CALLEE.replace("2.0", "5.0"))
    assert copy.run(ONE, **given) == "16.0 ['apply']"
    assert copy.run(ONE, NUMBA_CPU_NAME="generic", **given) == "16.0 ['apply']"
    assert copy.run(ONE, **given) == "16.0 []"
    assert len(list(own.rglob("apply-*.jit"))) == 2
    assert {path: path.read_bytes() for path in made.rglob("*.jit")} == entries
    assert {path: path.stat().st_mtime_ns for path in (made, *made.rglob("*"))} == times
    # A damaged one, or none: compiled.
    copy.write("callee", CALLEE)
    (path,) = entries
    path.chmod(0o600)
    path.write_bytes(entries[path][:-1] + b"?")
    assert copy.run(ONE, **given) == "7.0 ['apply']"
    nowhere = given | {"FEDEPM_FAST_KERNELS": str(tmp_path / "nowhere")}
    logged = "import logging, sys; logging.basicConfig(stream=sys.stdout)\n" + ONE
    told, result = copy.run(logged, **nowhere).splitlines()
    assert "FEDEPM_FAST_KERNELS names no compiled kernels that can be read" in told
    assert result == "7.0 []"
    made.chmod(0o700)


def test_numbers_that_helpers_raise_are_those_of_python(copy: Copy) -> None:
    """Where they are compiled, and where they come from the cache."""
    copy.write("callee", RAISING)
    program = """
from fedepm_fast.kernels import _jit, caller
compiled = []
_jit.on_compile(compiled.append)
try:
    caller.apply(-3.5)
except OverflowError as error:
    print(error.args, compiled)
"""
    for compiled in (["apply"], []):
        assert copy.run(program) == f"('too far', -3.5, 7) {compiled}"


def test_nothing_writable_is_one_line_and_works(copy: Copy) -> None:
    program = """
import contextlib, io
from fedepm_fast.kernels import _cache
_cache._candidates = lambda: iter(())
_cache._store.cache_clear()
with contextlib.redirect_stderr(io.StringIO()) as told:
    from fedepm_fast.kernels import caller, factory
    print(caller.apply(3.0), factory.by_one(0.0), end=": ")
print(told.getvalue())
"""
    assert copy.run(program) == (
        "7.0 2.0: compiled kernels are not kept for the next process: no folder for their cache "
        "can be written; NUMBA_CACHE_DIR can name a writable folder"
    )


def _entries(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*.jit"))}


def test_no_flipped_bit_is_loaded(copy: Copy) -> None:
    """In the checksum, the key or the machine code: refused, said in a line, compiled again."""
    copy.run()
    sound = _entries(copy.kernels)
    assert len(sound) == 5
    program = f"""
import contextlib, io, logging
from pathlib import Path
from fedepm_fast.kernels import _cache, _jit, caller, factory
said = []
logging.getLogger("fedepm_fast.kernels").handlers = [logging.Handler()]
logging.getLogger("fedepm_fast.kernels").handlers[0].emit = lambda r: said.append(r.getMessage())
store, count = _cache._store(), 0
for path in sorted(Path({str(copy.kernels)!r}).rglob("*.jit")):
    sound = path.read_bytes()
    assert store.read(path.parent.name, path.name) == sound[16:]
    for byte in {{*range(0, 40), *range(40, len(sound), len(sound) // 60), len(sound) - 1}}:
        bad = bytearray(sound)
        bad[byte] ^= 1 << byte % 8
        path.write_bytes(bad)
        assert store.read(path.parent.name, path.name) is None, byte
        assert said.pop() == f"a compiled kernel is damaged on disk: {{path}}"
        count += 1
    for bad in (sound[:-1], sound[:8], b"", sound + b"x", bytes(len(sound))):
        path.write_bytes(bad)
        assert store.read(path.parent.name, path.name) is None
    path.write_bytes(sound)
print(count >= 500)
"""
    assert copy.run(program) == "True"
    for number, (path, data) in enumerate(sound.items()):
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 4
        path.write_bytes(flipped if number else data[:100])
    assert copy.run().endswith(f"{ALL}")
    assert copy.run().endswith("[]")
    assert {path.name for path in sound} == {path.name for path in _entries(copy.kernels)}


def test_jit_disabled_runs_plain_python(copy: Copy) -> None:
    assert copy.run(NUMBA_DISABLE_JIT="1") == "[7.0, 2.0, 20.0, -1.0, -2.0] []"


def test_notice_comes_once_on_a_cold_cache_and_never_on_a_warm_one(copy: Copy) -> None:
    program = """
from fedepm_fast.kernels import _jit, caller
_jit.on_compile(lambda name: print("compiling", name))
withdraw = _jit.on_compile(lambda name: print("withdrawn"))
withdraw()
caller.apply(1.0); caller.apply(1)
"""
    assert copy.run(program) == "compiling apply"
    assert copy.run(program) == ""


def test_a_module_answers_for_what_it_imports() -> None:
    sources = _sources.Sources(SOURCES)
    needed = sources.needs("vecmath.py")
    simd = {f"_simd/{name}.py" for name in ("__init__", "_memory", "_types")}
    assert {"vecmath.py", "_jit.py", *simd} <= {*needed}
    assert "ens/__init__.py" not in needed and "__init__.py" not in needed
    # Within a folder, too.
    assert "losses/_packing.py" in sources.needs("losses/_packed.py")
    assert sources.needs("elsewhere.py") == tuple(sorted(sources._texts))


def test_old_folders_are_pruned_and_those_in_use_kept(tmp_path: Path) -> None:
    now = time.time()
    ages = {f"ens-{i}": 7200.0 + i for i in range(9)} | {"ens-young": 60.0, "prox-1": 9e9}
    for name, age in ages.items():
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (now - min(age, now), now - min(age, now)))
    (tmp_path / "ens-new").mkdir()
    _cache._prune(tmp_path / "ens-new")
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"ens-new", "ens-young", "ens-0", "ens-1", "ens-2", "ens-3", "prox-1"}


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
def test_a_folder_that_others_can_fill_is_not_trusted(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert not _cache._writable(shared, private=True)
    shared.chmod(0o700)
    assert _cache._writable(shared, private=True)


def test_threads_are_restored_even_after_an_error() -> None:
    before = numba.get_num_threads()
    with pytest.raises(RuntimeError, match="inside"), _jit.threads(1) as count:
        assert count == 1 == numba.get_num_threads()
        raise RuntimeError("inside")
    assert numba.get_num_threads() == before
    with _jit.threads(None) as count, _jit.threads(1):
        assert count == before


@pytest.mark.parametrize("count", [0, -1, 10_000])
def test_thread_counts_out_of_range_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="threads must be between 1 and"), _jit.threads(count):
        pass


@pytest.mark.parametrize("count", [1.0, "2", True])
def test_thread_counts_that_are_no_integers_are_refused(count: object) -> None:
    with pytest.raises(TypeError, match="threads must be an integer"), _jit.threads(count):  # type: ignore[arg-type]
        pass


@_jit.parallel_kernel
def _squares(out: np.ndarray) -> None:
    for i in numba.prange(out.size):
        out[i] = i * i


def test_python_threads_take_turns_in_parallel_kernels() -> None:
    outs = [np.zeros(1000) for _ in range(4)]

    def work(out: np.ndarray) -> None:
        for _ in range(20):
            with _jit.threads(None):
                _squares(out)

    workers = [threading.Thread(target=work, args=(out,)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for out in outs:
        np.testing.assert_array_equal(out, np.arange(1000.0) ** 2)


@_jit.kernel
def _largest(given: np.ndarray) -> float:
    largest = -np.inf
    for row in range(given.shape[0]):
        part = given[row]
        for j in range(part.size):
            largest = max(largest, part[j])
    return largest


@_jit.device
def _shifted(given: np.ndarray) -> np.ndarray:
    return given + 1.0


@_jit.kernel
def _largest_shifted(given: np.ndarray) -> float:
    return _largest(_shifted(given))


@_jit.kernel
def _largest_of_room(given: np.ndarray) -> float:
    held = room(given, given.size)
    for j in range(given.size):
        held[j] = given[j // given.shape[1], j % given.shape[1]]
    return held.max()


@_jit.device
def _put(held: list, given: np.ndarray) -> None:
    held[0] = given


def _of_chosen(given):
    chosen = given[np.arange(2)]
    return chosen.sum()


def _of_list(given):
    held = [given, given[1:]]
    return held[0].sum() + held[1].sum()


def _of_replaced(given):
    held = [given + 1.0]
    _put(held, given + 2.0)
    other = np.empty(given.shape)
    other[:] = 7.0
    return held[0].sum()


def _of_appended(given):
    held = [given]
    held.append(given + 1.0)
    return held[1].sum()


def _of_set(given):
    return len({given.size, given.size + 1})


def _of_numbers(given):
    return sum([float(k) for k in range(given.size)])


def _of_rows(given):
    total = 0.0
    for row in given:
        total += row.sum()
    return total


def _of_masked(given):
    first = given[:, 0]
    return first[first > 2.0].sum() + given.T[1, :].sum() + given.flatten()[0]


@pytest.mark.skipif(_jit.JIT_DISABLED, reason="counts what compiled code does")
@pytest.mark.parametrize(
    "function",
    [_of_chosen, _of_list, _of_replaced, _of_appended, _of_set, _of_numbers, _of_rows, _of_masked],
)
def test_whatever_a_kernel_holds_arrays_in_lives_as_long_as_it_does(function) -> None:
    given = np.arange(600.0).reshape(200, 3)
    compiled = _jit.kernel(function)
    plain = function(given) if function is not _of_replaced else (given + 2.0).sum()
    assert compiled(given) == plain
    _nrt_python.memsys_enable_stats()
    held, before = sys.getrefcount(given), rtsys.get_allocation_stats()
    assert {compiled(given) for _ in range(50)} == {plain}
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert sys.getrefcount(given) == held
    assert after.alloc - before.alloc == after.free - before.free


@pytest.mark.skipif(_jit.JIT_DISABLED, reason="plain functions can be called")
@pytest.mark.parametrize("decorator", [_jit.device, _jit.large_device])
def test_a_helper_that_is_called_from_python_says_what_it_is(decorator) -> None:
    @decorator
    def half(x):
        return 0.5 * x

    @_jit.kernel
    def quarter(x):
        return half(half(x))

    assert quarter(3.0) == 0.75
    for arguments in ((3.0,), (3,), ()):  # compiled for, not compiled for, wrong
        with pytest.raises(TypeError, match=r"half is compiled into the kernels that call it"):
            half(*arguments)


@pytest.mark.skipif(_jit.JIT_DISABLED, reason="counts what compiled code does")
def test_references_are_counted_where_arrays_are_made_and_nowhere_else() -> None:
    given = np.arange(6.0).reshape(2, 3)
    assert [f(given) for f in (_largest, _largest_shifted, _largest_of_room)] == [5.0, 6.0, 5.0]
    _nrt_python.memsys_enable_stats()
    held, before = sys.getrefcount(given), rtsys.get_allocation_stats()
    _largest_shifted(given)
    _largest_of_room(given)
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert sys.getrefcount(given) == held
    assert after.alloc - before.alloc == after.free - before.free >= 2
    (code,) = _largest.inspect_llvm().values()
    borrowed = code[code.index("define ") : code.index("cpython")]
    assert "NRT_decref" not in borrowed.partition("\n}")[0]


INTERRUPTED = """
import os, signal
from fedepm_fast.kernels._uninterrupted import uninterrupted

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may ignore it
done = []
try:
    with uninterrupted():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("inner")
        done.append("outer")
except KeyboardInterrupt:
    done.append("heard")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
signal.signal(signal.SIGINT, signal.SIG_IGN)
with uninterrupted():
    os.kill(os.getpid(), signal.SIGINT)
print(*done)
"""


def test_an_interrupt_waits_for_the_compiler(copy: Copy) -> None:
    assert copy.run(INTERRUPTED) == "inner outer heard"


@pytest.mark.parametrize("given", [("float64",), ("float32",), ("float64", "float32"), None])
def test_modules_warm_the_numbers_that_are_asked_for_or_all(given, monkeypatch):
    asked = []
    for name in kernels._MODULES:
        getattr(kernels, name)  # registers what warms it
    monkeypatch.setattr(_jit, "_warmups", [asked.append] * 2)
    assert kernels.warmup(*[given] * (given is not None)) == ()
    assert asked == [given or ("float64", "float32")] * 2


@pytest.mark.parametrize("dtypes", ["float32", ("float16",), ("float64", "f4"), (np.float32,)])
def test_other_numbers_than_there_are_kernels_for_cannot_be_warmed(dtypes):
    with pytest.raises(ValueError, match="must be a tuple of 'float64' and 'float32', got "):
        kernels.warmup(dtypes)
