"""The lab: compare policies on a scenario, and show the results.

```
compare.py      the one call: scenario × information × policy × seed → Comparison
leaderboard.py  every policy on a fixed list of scenarios
run/            plans (comparisons and their cells), cells (one policy, one seed), processes and ray (where cells
                run), store (the result directory), results (numbers of a comparison), sweep (many settings)
show/           tables, plots, report, words; page and canvas are what pages and plots share
reproduce/      experiments of the papers and their verdicts
replay/         traces played under other policies
```
"""
