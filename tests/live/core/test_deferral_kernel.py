"""The kernel that says when a gang would end on faster servers, against its plain twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.live.core.kernels import Releases, ends_later
from tests.reference import deferral as twin


@settings(max_examples=500)
@given(st.data())
def test_it_is_its_plain_twin(data: st.DataObject) -> None:
    servers, resources, roles = (data.draw(st.integers(1, most)) for most in (4, 2, 2))
    amounts = st.lists(st.integers(0, 4), min_size=resources, max_size=resources)
    speed = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=servers, max_size=servers))
    demand = data.draw(st.lists(amounts, min_size=roles, max_size=roles))
    minimum = data.draw(st.lists(st.integers(0, 4), min_size=roles, max_size=roles))
    each = data.draw(st.lists(st.integers(1, 4), min_size=roles, max_size=roles))
    free = data.draw(st.lists(amounts, min_size=servers, max_size=servers))
    release = st.tuples(st.integers(1, 9).map(float), st.integers(0, servers - 1), amounts)
    releases = sorted(data.draw(st.lists(release, max_size=6)), key=lambda one: one[0])
    work, beat = data.draw(st.sampled_from([1.0, 7.0])), data.draw(st.sampled_from([0.0, 0.5, 1.5]))
    whole = np.int64
    given_ = Releases(
        np.array([time for time, _, _ in releases], dtype=np.float64),
        np.array([server for _, server, _ in releases], dtype=whole),
        np.array([amount for _, _, amount in releases], dtype=whole).reshape(len(releases), resources),
    )
    needs, least, most, left = (np.array(one, dtype=whole) for one in (demand, minimum, each, free))
    found = ends_later(np.array(speed), needs, least, most, left, given_, work, beat)
    assert found == twin.ends_later(speed, demand, minimum, each, free, releases, work, beat)
