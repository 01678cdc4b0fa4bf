"""The kernels beside their peers, on this machine.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE OPENBLAS_NUM_THREADS=1 python bench/peers.py

Every figure is a ratio of medians of interleaved runs in one process. ``--plot FILE`` draws
them, ``--table PAGE`` takes those of a page and measures nothing, ``--memmap`` adds the 8 GiB file,
``--avx2`` repeats the kernels limited to AVX2, ``--only TEXT`` picks rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Work = Callable[[], Any]


@dataclass
class Row:
    """A measured ratio and what it should be."""

    kernel: str
    peer: str
    ratio: float
    goal: str
    beyond: str = ""
    note: str = ""
    met: bool = field(init=False)

    def __post_init__(self) -> None:
        sign, bound = self.goal.split()
        self.met = self.ratio <= float(bound) if sign == "<=" else self.ratio >= float(bound)


def medians(works: list[Work], seconds: float = 1.5, least: int = 7) -> list[float]:
    """Median seconds of each piece of work, the pieces taking turns."""
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    end = time.perf_counter() + seconds
    while len(times[0]) < least or (time.perf_counter() < end and len(times[0]) < 400):
        for record, work in zip(times, works, strict=True):
            start = time.perf_counter()
            work()
            record.append(time.perf_counter() - start)
    return [median(record) for record in times]


def often(work: Work, times: int) -> Work:
    """`work` repeated, where one call is too short to time."""

    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


DATA: dict[str, Callable[[Any, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "lognormal(3)": lambda rng, shape: rng.lognormal(0, 3, shape),
    "bimodal": lambda rng, shape: rng.normal(size=shape) + 10 * rng.integers(0, 2, shape),
    "ties": lambda rng, shape: rng.integers(0, 4, shape).astype(float),
}
SPREADS = (1e-3, 0.5, 1e3)  # c over the spread: much smaller, alike, much larger


def aggregation() -> Iterator[Row]:
    """ENS beside the mean, the median and the sort of the same numbers."""
    from fedepm_fast.kernels.ens import ens

    rng = np.random.default_rng(0)
    for shape, goal, beyond in (
        ((10, 1_000_000), 0.9, 0.7),
        ((100, 200_000), 2.75, 1.8),
        ((1000, 20_000), 2.1, 1.6),
    ):
        Z = rng.normal(size=shape)
        single, out = Z.astype(np.float32), np.empty(shape[1])
        out32 = np.empty(shape[1], np.float32)
        works = [lambda: Z.mean(axis=0)]
        works += [lambda c=c: ens(Z, c, out=out) for c in SPREADS]
        works += [lambda c=c: ens(single, c, out=out32) for c in SPREADS]
        mean, *t = medians(works)
        name = f"ens {shape[0]} x {shape[1]:,}"
        note = "c " + ", ".join(
            f"{c:g}: {x / mean:.2f}" for c, x in zip(SPREADS, t[:3], strict=True)
        )
        yield Row(name, "np.mean(axis=0)", max(t[:3]) / mean, f"<= {goal}", str(beyond), note)
        worst = max(b / a for a, b in zip(t[:3], t[3:], strict=True))
        yield Row(f"{name} float32", "its float64", worst, "<= 0.65", "0.5")
        if shape[0] == 100:
            mean, one, two = medians(
                [lambda: Z.mean(axis=0), lambda: ens(Z, 0.5, out=out),
                 lambda: ens(Z, 0.5, out=out, threads=2)]
            )  # fmt: skip
            note = f"one thread {one / mean:.2f}"
            yield Row(f"{name}, 2 threads", "np.mean(axis=0)", two / mean, "<= 1.4", "1.1", note)
            ours, med, sort = medians(
                [lambda: ens(Z, 1e3, out=out), lambda: np.median(Z, axis=0),
                 lambda: np.sort(Z, axis=0)], least=5,
            )  # fmt: skip
            yield Row(name, "np.median, times faster", med / ours, ">= 15", "25")
            yield Row(name, "bare np.sort, times faster", sort / ours, ">= 4", "6")
    Z = rng.normal(size=(100, 14))
    mean, ours = medians([often(lambda: np.mean(Z, axis=0), 500), often(lambda: ens(Z, 0.5), 500)])
    yield Row("ens 100 x 14", "np.mean(axis=0)", ours / mean, "<= 0.6", "0.4")
    worst, note = 0.0, ""
    for name in list(DATA)[1:]:
        Z = DATA[name](rng, (100, 200_000))
        c = 1e3 * float(np.median(np.abs(Z[:, :1000])))
        out = np.empty(Z.shape[1])
        mean, ours = medians([lambda Z=Z: Z.mean(axis=0), lambda Z=Z: ens(Z, c, out=out)])
        note += f"{name} {ours / mean:.2f}  "
        worst = max(worst, ours / mean)
    yield Row("ens 100 x 200,000, hard data", "np.mean(axis=0)", worst, "<= 5", "3", note)


def losses() -> Iterator[Row]:
    """Values and gradients of the clients' objectives."""
    from scipy import sparse
    from scipy.special import expit

    from fedepm_fast import datasets
    from fedepm_fast.kernels import losses as kernels

    data = datasets.adult(clients=100, seed=0)
    A, b, sizes, starts = data.features, data.labels, data.client_sizes, data.offsets[:-1]
    x = np.random.default_rng(0).normal(size=14)
    rows = kernels.pack(A, b, sizes)
    single = kernels.pack(A.astype(np.float32), b, sizes)
    x32 = x.astype(np.float32)
    out = (np.empty(100), np.empty((100, 14)))
    out32 = (np.empty(100, np.float32), np.empty((100, 14), np.float32))

    def by_numpy() -> np.ndarray:
        residual = (expit(A @ x) - b)[:, None] * A
        return np.add.reduceat(residual, starts, axis=0) / sizes[:, None]

    works: list[Work] = [
        lambda: A.sum(),
        lambda: kernels.values_and_gradients(rows, x, out=out),
        lambda: kernels.values_and_gradients(single, x32, out=out32),
        by_numpy,
    ]
    # Many times each in a row: a run reads the same rows every round, so they are in the cache.
    total, ours = (t / 30 for t in medians([often(w, 30) for w in works[:2]]))
    name = "logistic value+gradient, Adult, m = 100"
    yield Row(name, "A.sum()", ours / total, "<= 1.25", "0.95", f"{1e6 * ours:.0f} us")
    ours, ours32, theirs = (t / 30 for t in medians([often(w, 30) for w in works[1:]]))
    yield Row(name, "NumPy gradient, times faster", theirs / ours, ">= 7", "9")
    yield Row(f"{name}, float32", "its float64", ours32 / ours, "<= 0.65", "0.5")
    try:
        from sklearn.linear_model._linear_loss import LinearModelLoss
    except ImportError:
        pass
    else:
        from sklearn._loss import HalfBinomialLoss

        whole = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=False)
        ours, theirs = medians([works[1], lambda: whole.loss_gradient(x, A, b, n_threads=1)])
        yield Row(name, "scikit-learn's one gradient, times faster", theirs / ours, ">= 8", "9")
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
        At, bt = torch.from_numpy(A.copy()), torch.from_numpy(b.copy())

        def by_torch() -> Any:
            xt = torch.from_numpy(x).requires_grad_()
            margin = At @ xt
            loss = torch.nn.functional.binary_cross_entropy_with_logits(margin, bt)
            return torch.autograd.grad(loss, xt)

        ours, theirs = medians([works[1], by_torch])
        yield Row(name, "torch, times faster", theirs / ours, ">= 5", "9")

    rng = np.random.default_rng(1)
    A2, b2 = rng.normal(size=(20_000, 300)), (rng.random(20_000) < 0.5).astype(float)
    x2 = rng.normal(size=300) / 17
    rows2 = kernels.pack(A2, b2, np.array([20_000]))

    def dense_numpy() -> Any:
        margin = A2 @ x2
        return np.logaddexp(0, margin).sum() - b2 @ margin, A2.T @ (expit(margin) - b2)

    ours, theirs = medians(
        [often(lambda: kernels.values_and_gradients(rows2, x2), 3), often(dense_numpy, 3)]
    )
    yield Row("logistic 20,000 x 300", "NumPy, times faster", theirs / ours, ">= 2.2", "2.6")
    S = sparse.random_array((100_000, 5_000), density=0.005, rng=rng, format="csr")
    b3, x3 = (rng.random(100_000) < 0.5).astype(float), rng.normal(size=5_000)
    rows3 = kernels.pack(S, b3, np.array([100_000]))
    T = S.T.tocsr()  # what a SciPy user would keep: products with rows are its fast ones

    def sparse_scipy() -> Any:
        margin = S @ x3
        return np.logaddexp(0, margin).sum() - b3 @ margin, T @ (expit(margin) - b3)

    ours, theirs = medians(
        [often(lambda: kernels.values_and_gradients(rows3, x3), 3), often(sparse_scipy, 3)]
    )
    name = "logistic CSR 100,000 x 5,000 (2.5 M)"
    yield Row(name, "SciPy, times faster", theirs / ours, ">= 2.8", "4")


def local_steps() -> Iterator[Row]:
    """FedEPM's twelve local steps beside NumPy's."""
    from fedepm_fast import FedEPM
    from fedepm_fast.kernels.local_steps import fedepm_local_steps, fedepm_local_steps_raw
    from fedepm_fast.reference import fedepm_iterates

    algorithm = FedEPM(local_steps=12, lam=1e-5, eta=2e-5)
    rng = np.random.default_rng(0)
    for (s, n), goal, beyond in (((100, 14), 40, "60"), ((100, 200_000), 6, "8")):
        W, G = rng.normal(size=(2, s, n))
        x, step = rng.normal(size=n), np.full(s, 1 / 450)
        out = np.empty_like(W)
        parameters = {
            "lam": 1e-5, "eta": 2e-5, "mu0": 0.05, "c": 1e-8, "alpha": 1.001, "local_steps": 12,
            "first_iteration": 0,
        }  # fmt: skip

        def by_numpy(W=W, G=G, x=x, step=step, s=s, n=n) -> None:
            # Small problems whole, large ones client by client, which stays in the cache.
            for part in [slice(0, s)] if n < 1000 else [slice(i, i + 1) for i in range(s)]:
                for _ in fedepm_iterates(algorithm, W[part], x, G[part], step[part], 0):
                    pass

        def ours_(W=W, G=G, x=x, step=step, out=out, parameters=parameters) -> None:
            fedepm_local_steps(W, x, G, step, out=out, **parameters)

        singles = [a.astype(np.float32) for a in (W, x, G, step)]
        out32 = np.empty((s, n), np.float32)

        def single_(singles=singles, out32=out32, parameters=parameters) -> None:
            fedepm_local_steps(*singles, out=out32, **parameters)

        rows, mu = np.arange(s), np.empty(s)

        def compiled(W=W, G=G, x=x, step=step, out=out, rows=rows, mu=mu) -> None:
            values = list(parameters.values())
            fedepm_local_steps_raw(W, x, G, step, rows, *values, out, mu)

        times = 50 if n < 1000 else 1
        ours, ours32, theirs, inner = medians(
            [often(work, times) for work in (ours_, single_, by_numpy, compiled)], least=3
        )
        name = f"local steps k0 = 12, {s} x {n:,}"
        note = f"{1e6 * inner / times:.1f} us; checked call {1e6 * ours / times:.1f} us, "
        yield Row(name, "NumPy, times faster", theirs / inner, f">= {goal}", beyond,
                  f"{note}{theirs / ours:.1f} times")  # fmt: skip
        if n > 1000:
            yield Row(f"{name}, float32", "its float64", ours32 / ours, "<= 0.65", "0.5")


def noise() -> Iterator[Row]:
    """Laplace noise beside NumPy's generator."""
    from fedepm_fast.kernels.noise import laplace
    from fedepm_fast.randomness import NOISE

    rng, clients = np.random.default_rng(0), np.arange(100)
    out, out32 = np.empty((100, 200_000)), np.empty((100, 200_000), np.float32)
    ours, ours32, theirs = medians(
        [
            lambda: laplace(0, 0, NOISE, 0, clients, 200_000, out=out),
            lambda: laplace(0, 0, NOISE, 0, clients, 200_000, dtype=np.float32, out=out32),
            lambda: rng.laplace(size=(100, 200_000)),
        ],
        least=3,
    )
    yield Row("Laplace noise 100 x 200,000", "Generator.laplace, times faster", theirs / ours,
              ">= 8", "12")  # fmt: skip
    yield Row("Laplace noise, float32", "its float64", ours32 / ours, "<= 0.65", "0.5")


FIRST = "import time; t = time.perf_counter(); import numpy as np; n = time.perf_counter();"
IMPORT = f"{FIRST} import fedepm_fast.kernels.ens; print(time.perf_counter() - t)"
CALL = (
    f"{FIRST} from fedepm_fast.kernels.ens import ens; z = np.ones((100, 14)); "
    "t = time.perf_counter(); ens(z, 0.5); print(time.perf_counter() - t)"
)
EVERYTHING = (
    "import time, numpy as np; t = time.perf_counter(); from fedepm_fast import kernels; "
    "kernels.warmup(); print(time.perf_counter() - t)"
)
A_RUN = (
    "import time, numpy as np; t = time.perf_counter();"
    "from fedepm_fast.kernels import losses, local_steps, noise, sampling; "
    "from fedepm_fast.kernels.ens import ens; Z = np.ones((40, 14)); ens(Z, 0.5); "
    "rows = losses.pack(Z, np.arange(40.0) % 2, np.full(4, 10)); "
    "G = losses.values_and_gradients(rows, Z[0])[1]; "
    "local_steps.fedepm_local_steps(Z[:4], Z[0], G, np.ones(4), lam=1.0, eta=1.0, mu0=1.0, c=1.0,"
    "alpha=1.0, local_steps=2, first_iteration=0); "
    "noise.laplace(0, 0, 0, 0, [0], 14, standardize=True); sampling.sample(0, 0, 0, 0, 9, 3); "
    "print(time.perf_counter() - t)"
)


def seconds(code: str, cache: str | None = None) -> float:
    """What a program in a process of its own says it took, with this cache or the usual one."""
    chosen = {} if cache is None else {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, **chosen},
    )  # fmt: skip
    return float(done.stdout)


def waiting() -> Iterator[Row]:
    """What a user waits for: import, first call, compilation of everything."""
    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(A_RUN, cache)
        whole = cold + seconds(EVERYTHING, cache)
        yield Row("cold compile of what a FedEPM run needs", "seconds", cold, "<= 25", "15",
                  f"every kernel there is: {whole:.1f} s")  # fmt: skip
        load = median(seconds(IMPORT, cache) for _ in range(5))
        yield Row("import of fedepm_fast.kernels", "seconds", load, "<= 0.6", "", "with NumPy")
        call = median(seconds(CALL, cache) for _ in range(5))
        yield Row("first ens call, warm cache", "seconds", call, "<= 0.6")


def memory_mapped(gib: float = 8.0) -> Iterator[Row]:
    """ENS of a file larger than the caches of anything, in blocks of rows."""
    from fedepm_fast.kernels.ens import ens
    from fedepm_fast.kernels.ens_blocks import BLOCK_BYTES, ens_blocks

    n = 1_000_000
    m = int(gib * 2**30 / 8 / n)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "z"
        with open(path, "wb") as file:
            for _ in range(m):
                rng.standard_normal(n).tofile(file)
        Z = np.memmap(path, np.float64, "r", shape=(m, n))
        ens_blocks(np.ones((2, 16)), 0.5)

        rows = max(1, BLOCK_BYTES // (8 * n))
        buffer = np.empty((rows, n))

        def blocks() -> Iterator[np.ndarray]:
            with open(path, "rb", buffering=0) as file:
                for i in range(0, m, rows):
                    part = buffer[: min(rows, m - i)]
                    file.readinto(part.reshape(-1).view(np.uint8))
                    yield part

        buffer[:] = 0  # the block is in what was there before: what remains must be 10 n
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        start = time.perf_counter()
        w = ens_blocks(blocks, 0.5)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        some = slice(0, 4096)
        exact = np.abs(w[some] - ens(np.ascontiguousarray(Z[:, some]), 0.5)).max() <= 1e-15
        allowed = 10 * n * 8
        note = f"{m} x {n:,}, {seconds:.1f} s, exact: {exact}"
        name = "ens_blocks, 8 GiB on disk, peak memory"
        yield Row(name, "10*n*8, beside the block", peak / allowed, "<= 1", "", note)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "ens": aggregation,
    "losses": losses,
    "local steps": local_steps,
    "noise": noise,
    "waiting": waiting,
}


def limited(rows: list[Row], only: str) -> Iterator[Row]:
    """The same in a process limited to AVX2, against the figures above."""
    done = subprocess.run(
        [sys.executable, __file__, "--json", "--only", only],
        capture_output=True, text=True, check=True,
        env={**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""},
    )  # fmt: skip
    full = {(r.kernel, r.peer): r for r in rows}
    for found in json.loads(done.stdout):
        row = full.get((found["kernel"], found["peer"]))
        if row is None or row.peer in ("its float64", "seconds"):
            continue
        loss = found["ratio"] / row.ratio
        loss = 1 / loss if row.goal.startswith(">=") else loss
        yield Row(f"AVX2: {row.kernel}", f"AVX-512 ({row.peer})", loss, "<= 1.25")


def show(rows: list[Row]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{platform.processor() or platform.machine()}, NumPy {np.__version__}")
    for column in ("kernel", "to", "ratio", "goal", "beyond", "", "note"):
        table.add_column(column, justify="right" if column == "ratio" else "left")
    for row in rows:
        verdict = "met" if row.met else "missed"
        table.add_row(
            row.kernel, row.peer, f"{row.ratio:.2f}", row.goal, row.beyond, verdict, row.note
        )
    Console(width=170 if not sys.stdout.isatty() else None).print(table)


def read(page: Path) -> list[Row]:
    """The rows of the table that a page has; those of several ratios are left out."""
    rows = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").replace("`", "").split("|")]
        if len(cells) == 7 and cells[3][:2] in ("<=", ">=") and " to " not in cells[2]:
            kernel, peer, ratio, goal, beyond, _, remark = cells
            rows.append(Row(kernel, peer, float(ratio), goal, beyond, remark))
    return rows


FASTER = ", times faster"


def draw(rows: list[Row], path: Path) -> None:
    """Bars as long as what was measured, by what is measured, with the goals as marks."""
    from fedepm_fast import plots
    from fedepm_fast.plots._style import ink

    panels = {
        "times faster than the peer: longer is better": [r for r in rows if FASTER in r.peer],
        "time or memory over the peer's: shorter is better": [
            r for r in rows if FASTER not in r.peer and r.peer != "seconds"
        ],
        "seconds: shorter is better": [r for r in rows if r.peer == "seconds"],
    }
    panels = {name: part for name, part in panels.items() if part}
    sizes = [len(part) + 1 for part in panels.values()]
    figure, axes = plots.new_grid(len(panels), 1, 5.6, 0.42 * sum(sizes) + 0.6, height_ratios=sizes)
    for ax, (name, part) in zip(axes.flat, panels.items(), strict=True):
        places = range(len(part))
        colours = ["#0072B2" if r.met else "#D55E00" for r in part]
        ax.barh(places, [r.ratio for r in part], height=0.34, color=colours)
        goals = [float(r.goal[3:]) for r in part]
        ax.plot(goals, places, "|", color=ink(), markersize=11, markeredgewidth=2, label="goal")
        for k, row in enumerate(part):
            peer = "" if row.peer == "seconds" else f" / {row.peer.removesuffix(FASTER)}"
            missed = "" if row.met else ", goal missed"
            text = f"{row.kernel}{peer}: {row.ratio:.3g}{missed}"
            ax.annotate(text, (0, k - 0.24), xytext=(2, 0), textcoords="offset points", fontsize=8)
        ax.set_title(name, fontsize=10, loc="left")
        ax.set_yticks([])
        ax.set_ylim(len(part) - 0.6, -0.75)
        ax.set_xlim(0, 1.03 * max(*goals, *(r.ratio for r in part)))
        ax.grid(False, axis="y")
    axes[0, 0].legend(frameon=False, loc="lower right")
    plots.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts whose name contains this")
    parser.add_argument("--memmap", action="store_true", help="add the 8 GiB file")
    parser.add_argument("--avx2", action="store_true", help="repeat, limited to AVX2")
    parser.add_argument("--plot", type=Path, help="draw to this PNG or SVG")
    parser.add_argument("--table", type=Path, help="take the table of this page, measure nothing")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    arguments = parser.parse_args()
    rows: list[Row] = []
    if arguments.memmap:  # first: the peak memory is the process's
        rows += memory_mapped()
    if arguments.table:
        rows = read(arguments.table)
    for name, part in PARTS.items() if not arguments.table else ():
        if arguments.only in name:
            rows += part()
    if arguments.avx2:
        rows += limited(rows, arguments.only)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show(rows)
    if arguments.plot:
        draw(rows, arguments.plot)


if __name__ == "__main__":
    main()
