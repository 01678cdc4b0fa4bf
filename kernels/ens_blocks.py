"""ENS from counts and sums: for uploads that do not fit in memory, or that nobody may see.

`EnsSearch` asks, for a point t of its choice in every coordinate, how much weight lies above
it, until it has the exact solution: some 70 times where counts are all it is told, five to ten
times where it is told the neighbours of t as well. What answers may be a loop over blocks of rows
(`ens_blocks`), shards on other machines, or a secure-aggregation protocol that reveals nothing
but sums over the clients. The memory is nine arrays of n numbers, whatever the number of clients.
"""

from .ens._blocks import BLOCK_BYTES, ens_blocks
from .ens._search import EnsSearch

__all__ = ["BLOCK_BYTES", "EnsSearch", "ens_blocks"]
