"""The allocators that are compared, and how to open each."""

from benchmarks.allocators.contenders.contender import Contender, Family, Side
from benchmarks.allocators.contenders.roster import ROSTER, select

__all__ = ["ROSTER", "Contender", "Family", "Side", "select"]
