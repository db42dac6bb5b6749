"""The lab: compare policies on a scenario, and tell about it.

```
compare.py     the one call: scenario × information × policy × seed → Comparison
cells.py       one cell: what it is, its key, how it is computed
store.py       finished cells on disk, and a result directory's other files
plans.py       comparisons to be made, whose cells share their workers
pool.py        many cells over several processes; warm.py compiles first what they need
sweep.py       a comparison at each of many settings; ray_cells.py and
               ray_nodes.py compute cells on a Ray cluster
results.py     Comparison: everything that came of it, and its summary
statistics.py  means over seeds, paired by seed, with intervals
plots.py       the pictures, report.py the page, tables.py the terminal, words.py what all of them say
canvas.py      how all pictures look
leaderboard.py every policy on a fixed list of scenarios; leaderboard_page.py tells
manifest.py    what was run, with what; listing.py the policies there are; heat.py who holds what
```
"""
