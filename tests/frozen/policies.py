"""Policies whose results are frozen."""

from __future__ import annotations

__all__ = ["ALONE", "ASKED", "LIVE", "PUBLIC", "QUEUE"]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FITS = _listed("first best worst aligned whole")
RULES = _listed("fcfs fcfs:backfill=any sjf easy easy:order=shortest conservative wfp3:backfill=easy")
FITTED = tuple(f"{rule}{',' if ':' in rule else ':'}fit={fit}" for rule in RULES for fit in FITS)
"""Rules of the queue, each with every rule that finds servers."""
QUEUE = (
    *FITTED,
    *_listed("""
    best-fit tetris tetris:hurry=0 fgd fgd:backfill=none fgd:backfill=easy drf-placement drf-placement:fit=best
    ljf saf saf:backfill=any,fit=aligned wfp3 wfp3:backfill=any wfp3:backfill=shadow unicep
    unicep:backfill=easy,pick=committed f1 f2:pick=committed f3:backfill=any f4:backfill=easy,ties=smallest
    priority:score=wait/estimate+log2(size)
    """),
)
"""Policies of a queue, which kernels play."""
ASKED = _listed("""
    greedy greedy:order=densest placement-rule first-fit optra ossa hmao random-placement drl-greedy
""")
"""Policies that are asked at every event."""
PUBLIC = _listed("""
    fcfs:fit=first fcfs:backfill=any,fit=first sjf:fit=first easy:fit=first easy:fit=best
    easy:order=shortest,fit=first conservative:fit=first wfp3:backfill=easy,fit=first best-fit tetris fgd
    f1
""")
"""Policies on public logs."""
LIVE = _listed("""
    completion in-order-best-fit fcfs sjf easy conservative best-fit tetris fgd drf-placement wfp3:backfill=easy
    greedy ogasched escb-v tests.frozen.interface:Unruly
""")
"""Policies that decide for a live cluster, of all families; the first two are only live, the last is refused."""
ALONE = ("completion", "in-order-best-fit", "easy", "best-fit", LIVE[-1])
"""Those that play whole streams of jobs by themselves, and do not decide by last digits, which depend on processors."""
