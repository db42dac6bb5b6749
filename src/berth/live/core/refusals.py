"""Refusals: which servers did not take jobs of a kind lately, and until when such jobs are not offered to them again.

Jobs of a kind have the same user, type and shape. A server that refuses one is left out for all of them, for
`FIRST` seconds and twice as long as the attempt took, and for twice that each time that it refuses again. While servers
refuse one after another, all of them stay out, so that each is tried once. If the cluster as a whole refuses a job, for
example because no licence is free, its kind rests. An attempt that was under way before is no new evidence.

A start on a server clears the server's refusals of that kind, and a change of the server clears all of them. Otherwise
a refusal is forgotten `FORGET` seconds after the server was last left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from berth.live.core.jobs import Job

__all__ = ["ANYWHERE", "Refusal", "Refusals"]

ANYWHERE = ""
"""The name under which a kind rests on all servers."""
FIRST, LONGEST = 5.0, 3600.0
"""Seconds for which a server is excluded: the first time, and the most."""
TWICE, TOOK = 2.0, 60.0
"""How many times the seconds that the attempt took are added to `FIRST`, and the most seconds that count: after an
outage of the engine, an attempt may seem to have taken hours."""
EACH = 30.0
"""With many servers that refuse a kind, each may be left out for this long times their number: so all others are tried
before one of them is tried again, even by a policy that prefers them."""
FIRST_REST, LONGEST_REST, SHORT_REST = 1.0, 600.0, 4.0
"""Seconds for which a kind rests after its second refusal in a row; at most; and at most if servers refused it.
The last is less than `FIRST`, so that the next server is tried before the others are tried again."""
FORGET = 3600.0
MOST = 10_000
"""The most refusals that are remembered."""
LETTERS = 300
"""The most characters of a reason."""


@dataclass(frozen=True)
class Refusal:
    """How often a server refused jobs of a kind in a row, why it did so last, and when it is tried again."""

    count: int
    until: float
    reason: str = ""


@dataclass
class Refusals:
    """All refusals that are remembered, by kind and server."""

    known: dict[str, dict[str, Refusal]] = field(default_factory=dict)

    def copied(self) -> Refusals:
        """An independent copy."""
        return Refusals({kind: dict(servers) for kind, servers in self.known.items()})

    def note(self, job: Job, servers: Iterable[str], began: float, now: float, reason: str) -> None:
        """Remember that these servers refused an attempt that began then; without servers, the whole cluster did."""
        self._forget(now)
        kind, named = job.kind, tuple(dict.fromkeys(servers))
        mine = self.known.setdefault(kind, {})
        longest = max(LONGEST, EACH * len(mine.keys() | named))
        first = FIRST + TWICE * min(max(now - began, 0.0), TOOK)
        for server in named:
            count = _count(mine.get(server), began)
            mine[server] = _refusal(mine.get(server), count, now + _pause(count, first, longest), reason)
        for server, known in mine.items() if named else ():
            if server != ANYWHERE and known.until >= began:
                mine[server] = _refusal(known, known.count, now + min(first, longest), known.reason)
        rest, limit = mine.get(ANYWHERE), SHORT_REST if named else LONGEST_REST
        count = _count(rest, began)
        until = now + (_pause(count - 1, FIRST_REST, limit) if count > 1 else 0.0)
        mine[ANYWHERE] = _refusal(rest, count, until, "" if named else reason)
        self._bound()

    def took(self, job: Job, servers: Iterable[str]) -> None:
        """Forget that these servers refused such jobs: one of them runs there now."""
        kind = job.kind if self.known else ""
        if (mine := self.known.get(kind)) is not None:
            for server in servers:
                mine.pop(server, None)
            if not mine:
                del self.known[kind]

    def changed(self, server: str) -> None:
        """Forget what a server refused: it is different now."""
        for kind in [kind for kind, mine in self.known.items() if server in mine]:
            mine = self.known[kind]
            del mine[server]
            if not mine:
                del self.known[kind]

    def move(self, seconds: float) -> None:
        """Move all times, because the system clock was set."""
        for mine in self.known.values():
            mine.update({server: replace(one, until=one.until + seconds) for server, one in mine.items()})

    def of(self, job: Job, now: float) -> Mapping[str, Refusal]:
        """The servers that are left out for a job now; also `ANYWHERE`, while its kind rests."""
        mine = self.known.get(job.kind, {}) if self.known else {}
        return {server: refusal for server, refusal in mine.items() if refusal.until > now}

    def owners(self, now: float) -> frozenset[tuple[str, str]]:
        """Users and types of the kinds for which something is left out now."""
        active = (kind for kind, mine in self.known.items() if any(one.until > now for one in mine.values()))
        return frozenset((user, type_) for user, type_, _ in (kind.split(" ") for kind in active))

    def next_end(self, after: float) -> float:
        """The first moment after this one at which a server or a kind is tried again; infinity if there is none."""
        ends = (refusal.until for mine in self.known.values() for refusal in mine.values())
        return min((end for end in ends if end > after), default=float("inf"))

    def _forget(self, now: float) -> None:
        for kind, mine in list(self.known.items()):
            for server in [server for server, refusal in mine.items() if now > refusal.until + FORGET]:
                del mine[server]
            if not mine:
                del self.known[kind]

    def _bound(self) -> None:
        """Drop the refusals that end first if there are too many."""
        if sum(map(len, self.known.values())) <= MOST:
            return
        ends = sorted((one.until, kind, server) for kind, mine in self.known.items() for server, one in mine.items())
        for _, kind, server in ends[: max(len(ends) - MOST, 0)]:
            del self.known[kind][server]
            if not self.known[kind]:
                del self.known[kind]


def _count(known: Refusal | None, began: float) -> int:
    """How often it has refused now: an attempt that began before the end of its last pause adds nothing."""
    return 1 if known is None else known.count + (began >= known.until)


def _pause(count: int, first: float, longest: float) -> float:
    """Seconds for which a server is excluded, or a kind rests, after this number of consecutive refusals."""
    return min(first * 2.0 ** min(count - 1, 30), longest)


def _refusal(known: Refusal | None, count: int, until: float, reason: str) -> Refusal:
    if known is None:
        return Refusal(count, until, reason[:LETTERS])
    return Refusal(count, max(known.until, until), (reason or known.reason)[:LETTERS])
