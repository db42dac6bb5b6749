"""The built-in policies, one file each. Nothing registers itself: this dictionary is the whole list.

Other packages offer policies through the entry point group `berth.policies`; `berth.registry` finds
both.
"""

from __future__ import annotations

BUILTIN = {
    "ogasched": "berth.families.allocation.policies.ogasched:OGASched",
    "ogasched-rates": "berth.families.allocation.policies.rates:OGASchedRates",
    "ogasched-aware": "berth.families.allocation.policies.aware:OGASchedAware",
    "ogasched-gang": "berth.families.allocation.policies.gang:OGASchedGang",
    "ogasched-printed": "berth.families.allocation.policies.printed:OGASchedPrinted",
    "drf": "berth.families.allocation.policies.drf:DRF",
    "fairness": "berth.families.allocation.policies.fairness:Fairness",
    "binpacking": "berth.families.allocation.policies.binpacking:BinPacking",
    "spreading": "berth.families.allocation.policies.spreading:Spreading",
    "random-allocation": "berth.families.allocation.policies.random:RandomAllocation",
    "escb": "berth.families.selection.policies.escb:ESCB",
    "escb-v": "berth.families.selection.policies.escb_v:ESCBV",
    "cts": "berth.families.selection.policies.cts:CTS",
    "kl-ucb": "berth.families.selection.policies.kl_ucb:KLUCB",
    "cucb": "berth.families.selection.policies.cucb:CUCB",
    "epsilon-greedy": "berth.families.selection.policies.epsilon_greedy:EpsilonGreedy",
    "esdp-printed": "berth.families.selection.policies.printed:ESDPPrinted",
    "hauf": "berth.families.selection.policies.hauf:HAUF",
    "hswf": "berth.families.selection.policies.hauf:HAUF",
    "lcf": "berth.families.selection.policies.lcf:LCF",
    "lwtf": "berth.families.selection.policies.lwtf:LWTF",
    "random-selection": "berth.families.selection.policies.random:RandomSelection",
    "greedy": "berth.families.placement.policies.greedy:Greedy",
    "placement-rule": "berth.families.placement.policies.rule:Rule",
    "drl-greedy-printed": "berth.families.placement.policies.printed:DRLGreedyPrinted",
    "drl-direct": "berth.families.placement.policies.printed:DRLDirect",
    "drl-greedy": "berth.families.placement.policies.learned:Learned",
    "random-placement": "berth.families.placement.policies.random:RandomPlacement",
    "first-fit": "berth.families.placement.policies.first_fit:FirstFit",
    "optra": "berth.families.placement.policies.optra:OptRA",
    "ossa": "berth.families.placement.policies.ossa:OSSA",
    "hmao": "berth.families.placement.policies.hmao:HMAO",
    "fcfs": "berth.families.placement.policies.fcfs:FCFS",
    "sjf": "berth.families.placement.policies.sjf:SJF",
    "easy": "berth.families.placement.policies.easy:EASY",
    "conservative": "berth.families.placement.policies.conservative:Conservative",
    "best-fit": "berth.families.placement.policies.best_fit:BestFit",
    "tetris": "berth.families.placement.policies.tetris:Tetris",
    "drf-placement": "berth.families.placement.policies.fair:FairQueue",
    "fgd": "berth.families.placement.policies.fragmentation:FragmentationAware",
}
