"""Prices, repair and ruin-and-recreate for gangs with whole numbers of tasks.

Channels are sorted by role and roles by job: role i has channels `role_start[i]` to `role_start[i + 1]`, job j has
roles `job_start[j]` to `job_start[j + 1]`. A **price** (G, K) is asked for every unit of a pool; what is left of a
task's gain after its prices is its **worth**. `pull` is u in √y = min over u of 1/(2u) + u·y/2, which turns the root
into a sum.

Axes: n channels, L roles, J jobs, G pools, K resources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import compiled, inlined

FORCE = 0.5  # share of the steps that start a waiting job by force
LEVEL = 0.03  # how far below the bound steps aim, relative to it, while no answer is nearer
MEMORY = 0.04  # weight of the newest step in the averages
SEARCH_STEPS = 4000  # of one job's search for places; past it the job counts as not fitting
QUICK_STEPS = 100  # the same, where another try comes soon
WAITING = 4  # waiting jobs that may start in a step


# ---------------------------------------------------------------------------- random numbers


@inlined
def _draw(state: Any) -> Any:
    """A number in [0, 1): xorshift64*, so that one small array holds the whole state."""
    z = state[0]
    z ^= z >> np.uint64(12)
    z ^= z << np.uint64(25)
    z ^= z >> np.uint64(27)
    state[0] = z
    return float((z * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def _below(state: Any, size: int) -> int:
    return min(int(_draw(state) * size), size - 1)


# ---------------------------------------------------------------------------- the bound


@compiled
def worths(gain: Any, spread: Any, takes: Any, pool: Any, price: Any, pull: float, worth: Any) -> None:
    """What a task through each channel (n,) is worth after prices."""
    for e in range(gain.shape[0]):
        g = pool[e]
        w = gain[e] + 0.5 * pull * spread[e]
        for k in range(takes.shape[1]):
            w -= price[g, k] * takes[e, k]
        worth[e] = w


@compiled
def _sort_roles(role_start: Any, worth: Any, order: Any) -> None:
    """Best worth first within each role; `order` comes from the last call, so that it is nearly sorted already."""
    for i in range(role_start.shape[0] - 1):
        first = role_start[i]
        for a in range(first + 1, role_start[i + 1]):
            e = order[a]
            w = worth[e]
            b = a - 1
            while b >= first and worth[order[b]] < w:
                order[b + 1] = order[b]
                b -= 1
            order[b + 1] = e


@compiled
def price_jobs(
    role_start: Any, job_start: Any, low: Any, high: Any, cap: Any, worth: Any, order: Any, count: Any, job_worth: Any
) -> float:
    """Every job alone at these worths: its best tasks into `count` (n,), what they are worth into `job_worth` (J,).

    `count` is as if every job had to start; a job does start if that is worth more than nothing. Gives the sum over
    those that do.
    """
    _sort_roles(role_start, worth, order)
    total = 0.0
    for j in range(job_start.shape[0] - 1):
        value = 0.0
        for i in range(job_start[j], job_start[j + 1]):
            placed = 0
            for a in range(role_start[i], role_start[i + 1]):
                e = order[a]
                w = worth[e]
                n = min(cap[e], (high[i] if w > 0.0 else max(low[i], placed)) - placed)
                count[e] = n
                placed += n
                value += n * w
        job_worth[j] = value
        if value > 0.0:
            total += value
    return total


@compiled
def improve_prices(
    gain: Any,
    spread: Any,
    takes: Any,
    pool: Any,
    free: Any,
    role_start: Any,
    job_start: Any,
    low: Any,
    high: Any,
    cap: Any,
    steps: int,
    value: float,
    gap: float,
    price: Any,
    reals: Any,
    order: Any,
    best_price: Any,
    best_worth: Any,
    mean: Any,
    share: Any,
) -> int:
    """Subgradient steps on the prices towards a smaller bound; gives how many were made.

    `reals` holds pull, bound, the pull of the bound, step length. `value` is that of a known answer: no bound can be
    below it. `best_price` is that of the bound, `best_worth` (J,) what each job is worth there. `mean` (n,) and `share`
    (J,) average the tasks and starts of recent steps: nearly the solution of the relaxed problem.
    """
    n, resources, pools, jobs = gain.shape[0], takes.shape[1], free.shape[0], job_start.shape[0] - 1
    worth = np.empty(n)
    count = np.zeros(n, dtype=np.int64)
    job_worth = np.empty(jobs)
    slope = np.empty((pools, resources))
    way = np.zeros((pools, resources))
    way_size = 0.0
    stuck = 0
    rooted = False
    for e in range(n):
        rooted = rooted or spread[e] > 0.0
    made = 0
    for _ in range(steps):
        made += 1
        pull = reals[0]
        worths(gain, spread, takes, pool, price, pull, worth)
        bound = price_jobs(role_start, job_start, low, high, cap, worth, order, count, job_worth)
        if rooted:
            bound += 0.5 / pull
        for g in range(pools):
            for k in range(resources):
                bound += price[g, k] * free[g, k]
                slope[g, k] = 0.0
        spreads = 0.0
        for j in range(jobs):
            started = job_worth[j] > 0.0
            share[j] += MEMORY * ((1.0 if started else 0.0) - share[j])
            for e in range(role_start[job_start[j]], role_start[job_start[j + 1]]):
                c = float(count[e]) if started else 0.0
                mean[e] += MEMORY * (c - mean[e])
                spreads += mean[e] * spread[e]
                if c > 0.0:
                    for k in range(resources):
                        slope[pool[e], k] -= c * takes[e, k]
        if bound < reals[1]:
            level = max(value, (1.0 - LEVEL) * bound)
            stuck = 0 if bound < reals[1] - 0.02 * (bound - level) else stuck + 1
            reals[1] = bound
            reals[2] = pull
            for g in range(pools):
                for k in range(resources):
                    best_price[g, k] = price[g, k]
            for j in range(jobs):
                best_worth[j] = job_worth[j]
            if bound - value <= gap * abs(bound):
                break
        else:
            stuck += 1
        if stuck > 12:
            reals[3] *= 0.7
            stuck = 0
            for g in range(pools):
                for k in range(resources):
                    price[g, k] = best_price[g, k]
                    way[g, k] = 0.0
            reals[0] = reals[2]
            way_size = 0.0
            if reals[3] < 1e-4:
                break
            continue
        # slopes per whole pool, so that a pool's size does not matter; at price 0 only upward slopes count
        size, along = 0.0, 0.0
        for g in range(pools):
            for k in range(resources):
                if free[g, k] > 0.0:
                    slope[g, k] = 1.0 + slope[g, k] / free[g, k]
                else:
                    slope[g, k] = 0.0
                if price[g, k] <= 0.0 and slope[g, k] > 0.0:
                    slope[g, k] = 0.0
                size += slope[g, k] * slope[g, k]
                along += slope[g, k] * way[g, k]
        if size <= 1e-18 and not rooted:
            break
        # bending the step towards the last one when the two oppose each other keeps prices from zigzagging
        bend = 0.0
        if along < 0.0 and way_size > 0.0:
            bend = -1.5 * along / way_size
        way_size = 0.0
        for g in range(pools):
            for k in range(resources):
                way[g, k] = slope[g, k] + bend * way[g, k]
                way_size += way[g, k] * way[g, k]
        level = max(value, (1.0 - LEVEL) * reals[1])
        step = reals[3] * (bound - level) / max(way_size, 1e-12)
        for g in range(pools):
            for k in range(resources):
                if free[g, k] > 0.0:
                    price[g, k] = max(price[g, k] - step * way[g, k] / free[g, k], 0.0)
        if rooted:
            # the best pull is 1/√spreads; with few tasks that runs away, so it grows in steps
            reals[0] = pull + 0.1 * (min(1.0 / np.sqrt(max(spreads, 1e-300)), 10.0 * pull) - pull)
    return made


# ---------------------------------------------------------------------------- answers


class Gangs(NamedTuple):
    """A question as the kernels want it, and what the prices say about it."""

    gain: Any  # (n,)
    spread: Any  # (n,)
    takes: Any  # (n, K)
    pool: Any  # (n,)
    role: Any  # (n,)
    job: Any  # (n,)
    cap: Any  # (n,) how many tasks the empty pool holds
    role_start: Any  # (L + 1,)
    job_start: Any  # (J + 1,)
    low: Any  # (L,)
    high: Any  # (L,)
    pool_start: Any  # (G + 1,)
    pool_channel: Any  # (n,) channels by pool
    toll: Any  # (n,) what a task pays at the prices
    income: Any  # (n,) gain and its part of the root
    aim: Any  # (n,) tasks of a started job in the relaxed problem


class Answer(NamedTuple):
    """Tasks placed so far, and how to take the latest ones back."""

    count: Any  # (n,)
    left: Any  # (G, K)
    placed: Any  # (L,) tasks of each role
    started: Any  # (J,) 0 or 1
    sums: Any  # (2,) of gains and of spreads
    old: Any  # (n,) what channels had before they were touched
    touched: Any  # (n,) touched channels
    is_touched: Any  # (n,) 0 or 1
    sizes: Any  # (1,) how many are touched


@inlined
def _worth_of(answer: Answer) -> Any:
    return answer.sums[0] + np.sqrt(max(answer.sums[1], 0.0))


@compiled
def _put(gangs: Gangs, answer: Answer, e: int, tasks: int) -> None:
    if answer.is_touched[e] == 0:
        answer.is_touched[e] = 1
        answer.old[e] = answer.count[e]
        answer.touched[answer.sizes[0]] = e
        answer.sizes[0] += 1
    answer.count[e] += tasks
    answer.placed[gangs.role[e]] += tasks
    for k in range(gangs.takes.shape[1]):
        answer.left[gangs.pool[e], k] -= tasks * gangs.takes[e, k]
    answer.sums[0] += tasks * gangs.gain[e]
    answer.sums[1] += tasks * gangs.spread[e]


@compiled
def _room(gangs: Gangs, answer: Answer, e: int) -> Any:
    """How many more tasks fit on a channel."""
    room = gangs.cap[e] - answer.count[e]
    for k in range(gangs.takes.shape[1]):
        take = gangs.takes[e, k]
        if take > 0.0:
            left = answer.left[gangs.pool[e], k]
            if left < take * room:
                room = int(left / take) if left > 0.0 else 0
    return room


@compiled
def _drop(gangs: Gangs, answer: Answer, j: int) -> None:
    for e in range(gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]):
        if answer.count[e] > 0:
            _put(gangs, answer, e, -answer.count[e])
    answer.started[j] = 0


@compiled
def _take_back(gangs: Gangs, answer: Answer) -> None:
    """Undo everything since the last `_keep`."""
    size = answer.sizes[0]
    for a in range(size):
        e = answer.touched[a]
        change = answer.old[e] - answer.count[e]
        if change != 0:
            _put(gangs, answer, e, change)
    for a in range(size):
        j = gangs.job[answer.touched[a]]
        answer.started[j] = 0
    for a in range(size):
        e = answer.touched[a]
        j = gangs.job[e]
        if answer.started[j] == 0:
            for i in range(gangs.job_start[j], gangs.job_start[j + 1]):
                if answer.placed[i] > 0:
                    answer.started[j] = 1


@compiled
def _keep(answer: Answer) -> None:
    for a in range(answer.sizes[0]):
        answer.is_touched[answer.touched[a]] = 0
    answer.sizes[0] = 0


@compiled
def _search(gangs: Gangs, answer: Answer, j: int, order: Any, most_steps: int) -> bool:
    """Try every way to place the minimum of every role, role by role and channel by channel, until one fits."""
    first_role, last_role = gangs.job_start[j], gangs.job_start[j + 1]
    begin, end = gangs.role_start[first_role], gangs.role_start[last_role]
    # roles with few tasks first: they have few ways, and the rest of the tree is then a plain fill
    roles = np.empty(last_role - first_role, dtype=np.int64)
    for i in range(first_role, last_role):
        b = i - first_role
        while b > 0 and gangs.low[roles[b - 1]] > gangs.low[i]:
            roles[b] = roles[b - 1]
            b -= 1
        roles[b] = i
    path = np.empty(end - begin, dtype=np.int64)
    size = 0
    for i in roles:
        for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
            path[size] = order[a]
            size += 1
    tried = np.full(size + 1, -1, dtype=np.int64)  # what is now placed there; -1: nothing tried yet
    at, steps = 0, 0
    while at >= 0:
        if at == size:
            return True
        steps += 1
        if steps > most_steps:
            break
        e = path[at]
        i = gangs.role[e]
        if tried[at] < 0:
            need, seen = gangs.low[i] - answer.placed[i], 0
            a = at
            while a < size and gangs.role[path[a]] == i and seen < need:
                seen += _room(gangs, answer, path[a])
                a += 1
            if seen < need:
                at -= 1
                continue
            tried[at] = min(_room(gangs, answer, e), need)
            _put(gangs, answer, e, tried[at])
            at += 1
        else:
            if tried[at] == 0:
                tried[at] = -1
                at -= 1
            else:
                _put(gangs, answer, e, -1)
                tried[at] -= 1
                # one fewer here must still leave enough on the channels after it
                need, seen = gangs.low[i] - answer.placed[i], 0
                a = at + 1
                while a < size and gangs.role[path[a]] == i and seen < need:
                    seen += _room(gangs, answer, path[a])
                    a += 1
                if seen >= need:
                    at += 1
    for a in range(size):
        if answer.count[path[a]] > 0:
            _put(gangs, answer, path[a], -answer.count[path[a]])
    return False


@compiled
def _rank(gangs: Gangs, i: int, noise: float, state: Any, order: Any, key: Any) -> None:
    """Channels of a role by what a task is worth there.

    A random part of the toll moves tasks between pools of nearly equal worth.
    """
    first = gangs.role_start[i]
    for e in range(first, gangs.role_start[i + 1]):
        key[e] = gangs.income[e] - gangs.toll[e] * (1.0 + noise * (2.0 * _draw(state) - 1.0))
        a = e
        while a > first and key[order[a - 1]] < key[e]:
            order[a] = order[a - 1]
            a -= 1
        order[a] = e


@compiled
def _place(
    gangs: Gangs,
    answer: Answer,
    j: int,
    noise: float,
    extras: bool,
    aimed: bool,
    search: int,
    state: Any,
    order: Any,
    key: Any,
) -> bool:
    """Start a job where it is worth most at the prices, if it fits: the minimum of every role, with `extras` what pays.

    If `aimed`, tasks first go where the relaxed problem has them.
    """
    first, last = gangs.job_start[j], gangs.job_start[j + 1]
    for i in range(first, last):
        seen = 0
        for e in range(gangs.role_start[i], gangs.role_start[i + 1]):
            seen += _room(gangs, answer, e)
            if seen >= gangs.low[i]:
                break
        if seen < gangs.low[i]:
            return False
    for i in range(first, last):
        _rank(gangs, i, noise, state, order, key)
    fits = True
    for i in range(first, last):
        if aimed:
            for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
                e = order[a]
                if gangs.aim[e] > 0.0:
                    tasks = min(
                        int(gangs.aim[e] + _draw(state)), _room(gangs, answer, e), gangs.high[i] - answer.placed[i]
                    )
                    if tasks > 0:
                        _put(gangs, answer, e, tasks)
        for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
            need = gangs.low[i] - answer.placed[i]
            if need <= 0:
                break
            e = order[a]
            tasks = min(_room(gangs, answer, e), need)
            if tasks > 0:
                _put(gangs, answer, e, tasks)
        if answer.placed[i] < gangs.low[i]:
            fits = False
            break
    if not fits:
        _drop(gangs, answer, j)
        if last - first == 1 or not _search(gangs, answer, j, order, search):
            return False
    answer.started[j] = 1
    if not extras:
        return True
    for i in range(first, last):
        for a in range(gangs.role_start[i], gangs.role_start[i + 1]):
            e = order[a]
            if key[e] <= 0.0 or answer.placed[i] >= gangs.high[i]:
                break
            tasks = min(_room(gangs, answer, e), gangs.high[i] - answer.placed[i])
            if tasks > 0:
                _put(gangs, answer, e, tasks)
    return True


@compiled
def _make_room(
    gangs: Gangs, answer: Answer, e: int, want: int, score: Any, state: Any, chosen: Any, size: int, is_chosen: Any
) -> int:
    """Take away what is worth least in a channel's pool until `want` tasks fit; gives the number of chosen jobs.

    A task that its job can spare goes alone; otherwise its whole job goes, and is added to `chosen`.
    """
    g = gangs.pool[e]
    while _room(gangs, answer, e) < want:
        victim, least = -1, np.inf
        for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
            f = gangs.pool_channel[a]
            j = gangs.job[f]
            if answer.count[f] == 0 or j == gangs.job[e]:
                continue
            helps = False
            for k in range(gangs.takes.shape[1]):
                if gangs.takes[f, k] > 0.0 and answer.left[g, k] < want * gangs.takes[e, k]:
                    helps = True
            if not helps:
                continue
            if answer.placed[gangs.role[f]] > gangs.low[gangs.role[f]]:
                cost = gangs.income[f] - gangs.toll[f]
            else:
                cost = score[j]
            cost = cost * (0.5 + _draw(state)) if cost > 0.0 else cost
            if cost < least:
                victim, least = f, cost
        if victim < 0:
            break
        j = gangs.job[victim]
        if answer.placed[gangs.role[victim]] > gangs.low[gangs.role[victim]]:
            _put(gangs, answer, victim, -1)
        else:
            _drop(gangs, answer, j)
            if is_chosen[j] == 0:
                is_chosen[j] = 1
                chosen[size] = j
                size += 1
    return size


@compiled
def _force(
    gangs: Gangs,
    answer: Answer,
    j: int,
    noise: float,
    score: Any,
    state: Any,
    order: Any,
    key: Any,
    chosen: Any,
    size: int,
    is_chosen: Any,
) -> int:
    """Start a waiting job with the minimum of every role, at the expense of others; gives the number of chosen jobs."""
    roomy = _draw(state) < 0.5
    for i in range(gangs.job_start[j], gangs.job_start[j + 1]):
        _rank(gangs, i, noise, state, order, key)
        first, last = gangs.role_start[i], gangs.role_start[i + 1]
        for turn in range(2):
            if turn == 0 and not roomy:
                continue
            for a in range(first, last):
                e = order[a]
                want = min(gangs.cap[e] - answer.count[e], gangs.low[i] - answer.placed[i])
                if want <= 0:
                    continue
                if turn == 1:
                    size = _make_room(gangs, answer, e, want, score, state, chosen, size, is_chosen)
                tasks = min(want, _room(gangs, answer, e))
                if tasks > 0:
                    _put(gangs, answer, e, tasks)
        if answer.placed[i] < gangs.low[i]:
            _drop(gangs, answer, j)
            return size
    answer.started[j] = 1
    return size


@inlined
def _pays(gangs: Gangs, answer: Answer, e: int) -> bool:
    """Whether one more task on a channel makes the answer better."""
    if gangs.gain[e] >= 0.0:
        return True
    sums = max(answer.sums[1], 0.0)
    return bool(gangs.gain[e] + np.sqrt(sums + gangs.spread[e]) - np.sqrt(sums) > 0.0)


@compiled
def _offer(gangs: Gangs, answer: Answer, e: int, size: int, noise: float, state: Any, offers: Any, key: Any) -> int:
    """Add a channel to `offers`, best worth first, if it can take another task to advantage; gives the new size."""
    i = gangs.role[e]
    if answer.placed[i] >= gangs.high[i] or _room(gangs, answer, e) <= 0 or not _pays(gangs, answer, e):
        return size
    key[e] = gangs.income[e] - gangs.toll[e] * (1.0 + noise * (2.0 * _draw(state) - 1.0))
    b = size
    while b > 0 and key[offers[b - 1]] < key[e]:
        offers[b] = offers[b - 1]
        b -= 1
    offers[b] = e
    return size + 1


@compiled
def _top_up(
    gangs: Gangs, answer: Answer, jobs: Any, size: int, pools: Any, noise: float, state: Any, offers: Any, key: Any
) -> None:
    """More tasks of started jobs, best worth first: of any job in these pools (G,), and of these jobs anywhere."""
    count = 0
    for g in range(pools.shape[0]):
        if pools[g] == 1:
            for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
                e = gangs.pool_channel[a]
                if answer.started[gangs.job[e]] == 1:
                    count = _offer(gangs, answer, e, count, noise, state, offers, key)
    for a in range(size):
        j = jobs[a]
        if answer.started[j] == 1:
            for e in range(gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]):
                if pools[gangs.pool[e]] == 0:
                    count = _offer(gangs, answer, e, count, noise, state, offers, key)
    for a in range(count):
        e = offers[a]
        i = gangs.role[e]
        tasks = min(_room(gangs, answer, e), gangs.high[i] - answer.placed[i])
        while tasks > 0 and _pays(gangs, answer, e):
            # where the gain alone does not pay, the root's share falls with every task
            some = tasks if gangs.gain[e] >= 0.0 else 1
            _put(gangs, answer, e, some)
            tasks -= some


@compiled
def _recreate(
    gangs: Gangs,
    answer: Answer,
    jobs: Any,
    size: int,
    score: Any,
    pools: Any,
    noise: float,
    extras: bool,
    aimed: bool,
    search: int,
    state: Any,
    order: Any,
    offers: Any,
    key: Any,
) -> None:
    """Start jobs, best score first: those with a positive one, then more tasks for all, then the other jobs."""
    for a in range(1, size):
        j = jobs[a]
        b = a - 1
        while b >= 0 and score[jobs[b]] < score[j]:
            jobs[b + 1] = jobs[b]
            b -= 1
        jobs[b + 1] = j
    topped = False
    for a in range(size):
        j = jobs[a]
        if score[j] <= 0.0 and not topped:
            _top_up(gangs, answer, jobs, size, pools, noise, state, offers, key)
            topped = True
        before = _worth_of(answer)
        if not _place(gangs, answer, j, noise, extras or topped, aimed, search, state, order, key):
            continue
        if extras and _worth_of(answer) <= before:
            _drop(gangs, answer, j)
    if not topped:
        _top_up(gangs, answer, jobs, size, pools, noise, state, offers, key)


@compiled
def fill(gangs: Gangs, answer: Answer, job_worth: Any, extras: bool, aimed: bool, search: int, state: Any) -> float:
    """A first answer: all jobs by what they are worth at the prices. Gives its value.

    The settings of `_place` come from outside because a constant here would compile everything below a second time.
    """
    n, jobs, pools = gangs.gain.shape[0], gangs.job_start.shape[0] - 1, gangs.pool_start.shape[0] - 1
    order, offers, key = np.arange(n), np.empty(n, dtype=np.int64), np.empty(n)
    for j in range(jobs):
        _drop(gangs, answer, j)
    everywhere = np.ones(pools, dtype=np.int64)
    _recreate(
        gangs,
        answer,
        np.arange(jobs),
        jobs,
        job_worth,
        everywhere,
        0.0,
        extras,
        aimed,
        search,
        state,
        order,
        offers,
        key,
    )
    _keep(answer)
    return float(_worth_of(answer))


@compiled
def ruin_and_recreate(
    gangs: Gangs,
    answer: Answer,
    job_worth: Any,
    steps: int,
    enough: float,
    slack: float,
    heat: float,
    search: int,
    state: Any,
    best: Any,
    best_value: float,
) -> float:
    """Take jobs away and start jobs anew, many times; gives the best value, its tasks in `best` (n,).

    `job_worth` (J,) says which jobs are promising: those below −`slack` are left alone while they wait. Stops at a
    value of `enough`. A slightly worse answer is kept, with a tolerance that falls from `heat` to 0.
    """
    n, jobs, pools = gangs.gain.shape[0], gangs.job_start.shape[0] - 1, gangs.pool_start.shape[0] - 1
    order, offers, key = np.arange(n), np.empty(n, dtype=np.int64), np.empty(n)
    chosen, is_chosen = np.empty(jobs, dtype=np.int64), np.zeros(jobs, dtype=np.int64)
    score = np.empty(jobs)
    hot = np.zeros(pools, dtype=np.int64)
    now = float(_worth_of(answer))
    for step in range(steps):
        if best_value >= enough:
            break
        size = 0
        noise = 0.4 * _draw(state)
        extras = _draw(state) < 0.5
        aimed = _draw(state) < 0.5
        # either start a waiting job by force
        force = -1
        if _draw(state) < FORCE:
            j = _below(state, jobs)
            seen = 0
            for _ in range(jobs):
                j = j + 1 if j + 1 < jobs else 0
                if answer.started[j] == 0 and job_worth[j] > -slack:
                    if force < 0 or job_worth[j] > job_worth[force]:
                        force = j
                    seen += 1
                    if seen == 2:
                        break
        if force >= 0:
            size = _force(gangs, answer, force, noise, job_worth, state, order, key, chosen, size, is_chosen)
        else:
            # or empty some pools that one job can use: some of the jobs there go, the others give what they can spare
            share = 0.1 + 0.6 * _draw(state)
            spare = _draw(state)
            most = 1 + _below(state, 5)
            j = _below(state, jobs)
            for _ in range(jobs):
                if answer.started[j] == 1 or job_worth[j] > -slack:
                    break
                j = j + 1 if j + 1 < jobs else 0
            begin, end = gangs.role_start[gangs.job_start[j]], gangs.role_start[gangs.job_start[j + 1]]
            if end > begin:
                if answer.started[j] == 0 or _draw(state) < 0.5:
                    chosen[size] = j
                    size += 1
                    is_chosen[j] = 1
                    _drop(gangs, answer, j)
                for _ in range(1 + _below(state, 3)):
                    g = gangs.pool[begin + _below(state, end - begin)]
                    for a in range(gangs.pool_start[g], gangs.pool_start[g + 1]):
                        e = gangs.pool_channel[a]
                        j = gangs.job[e]
                        if answer.count[e] == 0 or is_chosen[j] == 1:
                            continue
                        if size < most and _draw(state) < share:
                            chosen[size] = j
                            size += 1
                            is_chosen[j] = 1
                            _drop(gangs, answer, j)
                        else:
                            over = min(answer.count[e], answer.placed[gangs.role[e]] - gangs.low[gangs.role[e]])
                            if over > 0 and _draw(state) < spare:
                                _put(gangs, answer, e, -over)
        # some of those that wait may come in their place
        j = _below(state, jobs)
        waiting = 0
        for _ in range(jobs):
            j = j + 1 if j + 1 < jobs else 0
            if answer.started[j] == 0 and is_chosen[j] == 0 and job_worth[j] > -slack:
                chosen[size] = j
                size += 1
                is_chosen[j] = 1
                waiting += 1
                if waiting == WAITING:
                    break
        for a in range(answer.sizes[0]):
            hot[gangs.pool[answer.touched[a]]] = 1
        for a in range(size):
            j = chosen[a]
            is_chosen[j] = 0
            score[j] = job_worth[j] + slack * (2.0 * _draw(state) - 1.0)
        _recreate(gangs, answer, chosen, size, score, hot, noise, extras, aimed, search, state, order, offers, key)
        for g in range(pools):
            hot[g] = 0
        value = float(_worth_of(answer))
        if value >= now - heat * (1.0 - step / steps) * _draw(state):
            now = value
            _keep(answer)
            if value > best_value + 1e-12 * abs(best_value):
                best_value = value
                for e in range(n):
                    best[e] = answer.count[e]
        else:
            _take_back(gangs, answer)
            _keep(answer)
    return best_value
