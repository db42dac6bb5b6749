"""The built-in policies, one file each. Nothing registers itself: this dictionary is the whole list.

Other packages offer policies through the entry point group `berth.policies`; `berth.registry` finds
both.
"""

from __future__ import annotations

BUILTIN = {
    "ogasched": "berth.policies.allocation.ogasched:OGASched",
    "ogasched-rates": "berth.policies.allocation.rates:OGASchedRates",
    "ogasched-aware": "berth.policies.allocation.aware:OGASchedAware",
    "ogasched-gang": "berth.policies.allocation.gang:OGASchedGang",
    "ogasched-printed": "berth.policies.allocation.printed:OGASchedPrinted",
    "drf": "berth.policies.allocation.drf:DRF",
    "fairness": "berth.policies.allocation.fairness:Fairness",
    "binpacking": "berth.policies.allocation.binpacking:BinPacking",
    "spreading": "berth.policies.allocation.spreading:Spreading",
    "random-allocation": "berth.policies.allocation.random_allocation:RandomAllocation",
    "escb": "berth.policies.selection.escb:ESCB",
    "escb-v": "berth.policies.selection.escb_v:ESCBV",
    "cts": "berth.policies.selection.cts:CTS",
    "kl-ucb": "berth.policies.selection.kl_ucb:KLUCB",
    "cucb": "berth.policies.selection.cucb:CUCB",
    "epsilon-greedy": "berth.policies.selection.epsilon_greedy:EpsilonGreedy",
    "esdp-printed": "berth.policies.selection.printed:ESDPPrinted",
    "hauf": "berth.policies.selection.hauf:HAUF",
    "hswf": "berth.policies.selection.hauf:HAUF",
    "lcf": "berth.policies.selection.lcf:LCF",
    "lwtf": "berth.policies.selection.lwtf:LWTF",
    "random-selection": "berth.policies.selection.random_selection:RandomSelection",
    "greedy": "berth.policies.placement.greedy:Greedy",
    "placement-rule": "berth.policies.placement.rule:Rule",
    "drl-greedy-printed": "berth.policies.placement.printed:DRLGreedyPrinted",
    "drl-direct": "berth.policies.placement.printed:DRLDirect",
    "drl-greedy": "berth.policies.placement.learned:Learned",
    "random-placement": "berth.policies.placement.random_placement:RandomPlacement",
    "first-fit": "berth.policies.placement.first_fit:FirstFit",
    "optra": "berth.policies.placement.optra:OptRA",
    "ossa": "berth.policies.placement.ossa:OSSA",
    "hmao": "berth.policies.placement.hmao:HMAO",
    "fcfs": "berth.policies.placement.fcfs:FCFS",
    "sjf": "berth.policies.placement.sjf:SJF",
    "easy": "berth.policies.placement.easy:EASY",
    "conservative": "berth.policies.placement.conservative:Conservative",
    "best-fit": "berth.policies.placement.best_fit:BestFit",
    "tetris": "berth.policies.placement.tetris:Tetris",
    "drf-placement": "berth.policies.placement.fair:FairQueue",
    "fgd": "berth.policies.placement.fragmentation:FragmentationAware",
}
