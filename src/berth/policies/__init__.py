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
}
