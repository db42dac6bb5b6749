"""The lab: compare policies on a scenario, and show the results.

```
compare.py      the main call: scenario × information × policy × seed → Comparison
sweep.py        comparisons or replays at many settings, with a report
leaderboard.py  every policy on a fixed list of scenarios, as a sweep
run/            plans (comparisons and their cells), cells (one policy, one seed), processes and ray (where cells
                run), store (the result directory), results (numbers of a comparison), sweep (many settings)
show/           tables, plots, report, words; page (with templates/) and canvas are shared helpers
reproduce/      experiments of the papers and their verdicts
replay/         traces replayed under other policies
```
"""
