"""The loops of assembly that LLVM wrote with comments, and what is in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Loop:
    """Counts of one loop, without those of the loops inside it."""

    function: str
    header: str
    depth: int
    inner: bool = True
    instructions: int = 0
    vectors: int = 0
    spills: int = 0
    reloads: int = 0
    unfused: int = 0
    gathers: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Loop) -> Loop:
        total = Loop(self.function, self.header, self.depth)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(total, name, dict(Counter(value) + Counter(getattr(other, name))))
            elif name not in ("function", "header", "depth", "inner"):
                setattr(total, name, value + getattr(other, name))
        return total


_FUNCTION = re.compile(r"^([A-Za-z_][\w.$]*):")
_BLOCK = re.compile(r"^(\.LBB\d+_\d+):|^(?:#|//) %bb\.\d+:")
_INSIDE = re.compile(r"in Loop: Header=(BB\d+_\d+) Depth=(\d+)")
_HEADER = re.compile(r"=>\s*This (Inner )?Loop Header: Depth=(\d+)")
#: What keeps functions of one name apart.
_UNIQUE = re.compile(r"_[0-9a-f]{32}")
_SYMBOL = re.compile(r"movabsq\s+\$([A-Za-z_][\w.$]*)|:lo12:([A-Za-z_][\w.$]*)")
_X86_FLOAT = re.compile(
    r"^v?(fn?m(?:add|sub)|add|sub|mul|div|min|max|sqrt|round|rndscale|scalef)"
    r"(?:\d{3})?(pd|ps|sd|ss)$"
)
_ARM_FLOAT = re.compile(r"^(fmla|fmls|fn?madd|fn?msub|fadd|fsub|fmul|fdiv|fmin|fmax|fsqrt|frint)")
_REGISTER = re.compile(r"%?\b([xyz]mm\d+|[vqds]\d+)\b")
_X86_BITS = {"x": 128, "y": 256, "z": 512}


def loops(name: str, text: str) -> Iterator[Loop]:
    """Every loop of a module, in the order of their headers; wrappers of Python are left out."""
    name = _UNIQUE.sub("", name).rpartition(".")[2]
    found: dict[str, Loop] = {}
    present: Loop | None = None
    products: set[str] = set()
    symbol, label, skipped = "?", "", False
    for line in text.splitlines():
        start = _FUNCTION.match(line)
        if start:
            skipped = start[1].startswith(("_ZN7cpython", "cfunc"))
            present, products = None, set()
            continue
        if skipped:
            continue
        block = _BLOCK.match(line)
        if block:
            label, present = (block[1] or "").removeprefix(".L"), None
            products = set()
        inside, header = _INSIDE.search(line), _HEADER.search(line)
        if inside or header:
            key, depth = (label, header[2]) if header else (inside[1], inside[2])
            present = found.setdefault(key, Loop(name, key, int(depth)))
            present.inner = present.inner and not (header and not header[1])
        if block or not line.startswith("\t") or line.startswith(("\t.", "\t#", "\t//")):
            continue
        named = _SYMBOL.search(line)
        if named:
            symbol = named[1] or named[2]
        if present is not None:
            _count(present, line, products, symbol)
    yield from found.values()


def _count(loop: Loop, line: str, products: set[str], symbol: str) -> None:
    """Add an instruction."""
    code, _, remark = line.strip().partition("// " if "//" in line else "# ")
    mnemonic, _, rest = code.partition("\t")
    mnemonic, operands = mnemonic.strip(), rest.strip()
    loop.instructions += 1
    loop.spills += "Spill" in remark
    loop.reloads += "Reload" in remark
    loop.gathers += "gather" in mnemonic
    if mnemonic.startswith("call") or mnemonic in ("bl", "blr"):
        direct = re.match(r"^[A-Za-z_][\w.$]*$", operands)
        callee = operands if direct and mnemonic != "blr" else symbol
        loop.calls[callee] = loop.calls.get(callee, 0) + 1
    registers = [r.translate(_SAME) for r in _REGISTER.findall(operands)]
    loop.vectors += bool(re.search(r"%[yz]mm|%xmm|\bv\d+\.|\bq\d+", operands)) and not re.search(
        r"s[sd]$", mnemonic
    )
    if not registers:
        return
    if "%" in operands:  # AT&T: what is written comes last
        kind = _X86_FLOAT.match(mnemonic)
        sources, written = registers[:-1], registers[-1]
        if len(sources) == 1 and kind and not mnemonic.startswith("v"):
            sources = registers  # two operands: the last is read as well
        bits = _x86_bits(kind[2], operands) if kind else 0
        name = kind[1] if kind else ""
    else:
        kind = _ARM_FLOAT.match(mnemonic)
        written, sources = registers[0], registers[1:]
        name = mnemonic[1:] if kind else ""
        bits = (128 if ".2d" in operands or ".4s" in operands else 64) if kind else 0
    if bits:
        loop.widths[str(bits)] = loop.widths.get(str(bits), 0) + 1
    if name in ("add", "sub") and any(r in products for r in sources):
        loop.unfused += 1
    if name == "mul":
        products.add(written)
    elif not mnemonic.startswith("st"):
        products.discard(written)


#: One name for a register of any width.
_SAME = str.maketrans({"y": "x", "z": "x", "q": "v", "d": "v", "s": "v"})


def _x86_bits(suffix: str, operands: str) -> int:
    if suffix in ("sd", "ss"):
        return 64 if suffix == "sd" else 32
    return max(_X86_BITS[r] for r in re.findall(r"%([xyz])mm", operands))
