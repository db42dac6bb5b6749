"""The lab: compare policies on a scenario, and show the results.

```
compare.py      the main call: scenario × information × policy × seed → Comparison
sweep.py        comparisons or replays at many settings, with a report
leaderboard.py  every policy on a fixed list of scenarios, as a sweep
run/            runner (cells of any kind: reused, computed, saved), store (the result directory), processes, ray and
                device (where cells run); cells, plans and results of comparisons, sweep (many settings)
show/           tables, plots, report, words; page (with templates/) and canvas are shared helpers
reproduce/      experiments of the papers and their verdicts
replay/         traces replayed under other policies
rehearsal.py    schedulers on a simulated copy of a cluster
```
"""
