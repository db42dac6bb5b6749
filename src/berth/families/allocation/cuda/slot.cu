// A slot of the allocation family: prices, then gain, gradient, step and exact projection of every segment.
//
// `prices` prepares a slot from the sums by cell that the last step left; one of the kernels `ascend`, `fair`,
// `in_turn`, `start` and `keep` then makes a decision y and leaves its sums. The clock, [slots of this call, slots
// before it], advances with each step.

#define STATS 3  // numbers that a block leaves: gain, Σ g² (or the length of `start`), largest excess over a capacity

enum Step { ASCEND, FAIR, IN_TURN, START, KEEP };

// Gain and gradient of the rows of a segment with this utility code, and the point to project.
#define CLIMB(KIND)                                                             \
  EACH_ROW {                                                                    \
    int at = cell[(Long)i * LANES];                                             \
    REAL w = prices[at].weight, charge = prices[at].charge, value;              \
    REAL before = held[(Long)i * LANES], now = most(before, ZERO);              \
    REAL slope = marginal(b, KIND, alpha, now, value);                          \
    if (signbit(charge)) {                                                      \
      if (KIND == LOG) logs.add(now);                                           \
      gain += value;                                                            \
    }                                                                           \
    REAL g = w * slope - fabs(charge), zi = STEP == KEEP ? now : before + pace * g; \
    square += g * g;                                                            \
    top = most(top, zi);                                                        \
    KEEP_CAP(i, caps[at]);                                                      \
    ROW(z, i) = zi;                                                                  \
  }

template <int STEP>
__device__ void step(const Batch b, const Pair* price, const REAL* eta, REAL* scratch, REAL* tau, REAL* y, Sum* partial,
                     double* stats, Long* clock) {
  int problem = b.block_problem[blockIdx.x], stride = b.stride;
  int first_block = b.problem_block[problem], blocks = b.problem_block[problem + 1] - first_block;
  int warps = blockDim.x / LANES, lane = threadIdx.x % LANES;
  const Pair* prices = price + (Long)problem * stride;
  const REAL* caps = b.cap + (Long)problem * stride;
#if SHARED
  Sum* sums = (Sum*)memory;
  Pair* own_prices = (Pair*)(NARROW ? memory + (stride + 1) / 2 : memory + stride);
  REAL* own_caps = (REAL*)(own_prices + stride);
#pragma unroll 8
  for (int i = threadIdx.x; i < stride; i += blockDim.x) {
    sums[i] = 0;
    own_caps[i] = caps[i];
    own_prices[i] = prices[i];
  }
  prices = own_prices, caps = own_caps;
  __syncthreads();
#define ADD(c, amount) add_shared(sums, stride, c, (amount) * scale)
#else
#define ADD(c, amount) atomicAdd((Bits*)partial + (Long)problem * stride + (c), (Bits)whole((amount) * scale))
#endif
  const REAL eps = sizeof(REAL) == 8 ? (REAL)2.220446049250313e-16 : (REAL)1.1920929e-07f;
  const REAL scale = (REAL)b.scale;
  REAL pace = STEP == ASCEND ? eta[problem] : ZERO;
  double gained = 0.0, norm = 0.0;
  REAL worst = ZERO;
  int last_tile = b.problem_tile[problem + 1];
  int stride_tiles = blocks * warps;
  for (int tile = b.problem_tile[problem] + ((int)blockIdx.x - first_block) * warps + (int)threadIdx.x / LANES;
       tile < last_tile; tile += stride_tiles) {
    int kind = b.kind[tile], first = b.start[tile], rows = b.start[tile + 1] - first;
    Long place = (Long)first * LANES + lane, segment = (Long)tile * LANES + lane;
    REAL alpha = b.alpha[segment], c = b.limit[segment];
    const CELL* cell = b.cell + place;
    REAL* held = y + place;
    ROW_VALUES(z, scratch + place);
#if ROWS
    REAL a[ROWS];
#define A(i) a[i]
#define KEEP_CAP(i, cap) a[i] = cap
#else
#define A(i) caps[cell[(Long)(i) * LANES]]
#define KEEP_CAP(i, cap)
#endif
    REAL gain = ZERO, square = ZERO, top = ZERO, total = ZERO;
    Product logs;
    // what to project: the step, or a share of what each channel may get
    if (STEP == ASCEND || STEP == KEEP) {
      switch (kind) {
        case LINEAR: CLIMB(LINEAR) break;
        case LOG: CLIMB(LOG) break;
        case RECIPROCAL: CLIMB(RECIPROCAL) break;
        case POLY: CLIMB(POLY) break;
        default: CLIMB(kind)
      }
    } else {
      EACH_ROW {
        int at = cell[(Long)i * LANES];
        REAL cap = caps[at], zi = STEP == START ? (REAL)0.5 * cap : prices[at].weight * cap;
        total += STEP == START ? cap : zi;
        if (STEP == START) square = most(square, cap);
        top = most(top, zi);
        KEEP_CAP(i, cap);
        ROW(z, i) = zi;
      }
    }
    REAL t = ZERO, share = ONE, filled = ZERO;
    if (STEP == ASCEND || STEP == START) {
      if (STEP == START) square *= least(c, total);
      t = STEP == START ? ZERO : tau[segment];
      t = least(t > ZERO ? t : ZERO, top);
      REAL low = -ONE, high = top, rounding = eps * (REAL)(4 + rows);
      for (int round = 0; round < MOST; round++) {
        REAL moving = ZERO;
        filled = ZERO;
        EACH_ROW {
          REAL d = ROW(z, i) - t, v = least(most(d, ZERO), A(i));
          filled += v;
          moving += v == d ? ONE : ZERO;
        }
        REAL excess = filled - c, slack = rounding * (c + t);
        if (!(excess > slack || (excess < -slack && t > ZERO))) break;
        if (excess > ZERO) low = t; else high = t;
        REAL next;
        if (moving == ZERO) {
          // the next multiplier at which the sum moves; slightly further, or rounding may leave an element at its cap
          REAL above = top, below = ZERO;
          EACH_ROW {
            REAL zi = ROW(z, i), cap = A(i), leaves = zi - cap;
            leaves += eps * (leaves + cap);
            if (zi - t > cap && cap > ZERO) above = least(above, leaves);
            if (zi < t) below = most(below, zi - eps * zi);
          }
          next = excess > ZERO ? above : below;
        } else {
          next = most(t + excess * inverse(moving), ZERO);
        }
        if (!(low < next && next < high)) next = most((REAL)0.5 * low + (REAL)0.5 * high, ZERO);
        t = c > ZERO ? next : top;
      }
      tau[segment] = t;
    } else if (STEP == FAIR) {
      share = total <= c ? ONE : c / total;
    }
    // the decision, its sums and, if it is played in this slot, its gain
    REAL left = c;
    filled = ZERO;
    EACH_ROW {
      int at = cell[(Long)i * LANES];
      REAL v = ROW(z, i);
      if (STEP == ASCEND || STEP == START) v = least(most(v - t, ZERO), A(i));
      if (STEP == FAIR) v *= share;
      if (STEP == IN_TURN) {
        v = least(v, left);
        left -= v;
      }
      if (STEP == FAIR || STEP == IN_TURN) {
        REAL value;
        marginal(b, kind, alpha, v, value);
        if (signbit(prices[at].charge)) {
          if (kind == LOG) logs.add(v);
          gain += value;
        }
      }
      filled += v;
      if (STEP != KEEP) held[(Long)i * LANES] = v;
      ADD(at, v);
    }
    gain += alpha * logs.total();
    gained += gain;
    norm += square;
    worst = most(worst, (filled - c) * inverse(ONE + c));
  }
#if SHARED
  __syncthreads();
  Sum* row = partial + (Long)blockIdx.x * stride;
  for (int i = threadIdx.x; i < stride; i += blockDim.x) row[i] = shared_sum(sums, stride, i);
#endif
  double most_over = worst;
  double none = 0.0;
  block_total((double*)memory, gained, norm, none, most_over);
  if (threadIdx.x == 0) {
    stats[blockIdx.x * STATS] = gained;
    stats[blockIdx.x * STATS + 1] = norm;
    stats[blockIdx.x * STATS + 2] = most_over;
    if (blockIdx.x == 0) clock[0] += 1;
  }
}

#define KERNEL(NAME, STEP)                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
      NAME(BATCH, const Pair* price, const REAL* eta, REAL* scratch, REAL* tau, REAL* y, Sum* partial,               \
           double* stats, Long* clock) {                                                                             \
    step<STEP>(THE_BATCH, price, eta, scratch, tau, y, partial, stats, clock);                                               \
  }
KERNEL(ascend, ASCEND)
KERNEL(fair, FAIR)
KERNEL(in_turn, IN_TURN)
KERNEL(start, START)
KERNEL(keep, KEEP)

// One block for some jobs of one problem: sums, dominant overhead, prices. One more block for each problem closes the
// slot before. Price by cell: weight and charge, the charge negative if the job has arrived.
extern "C" __global__ void prices(
    const int* problem_row,         // (P+1,) rows of `partial` of each problem
    const int* problem_block,       // (P+1,)
    const unsigned char* arrivals,  // (P, slots, jobs)
    const double* betas,            // (P, jobs, resources)
    const double* length,           // (P,) diameter, for the step of AdaGrad
    double* squares,                // (P,) Σ‖g‖² so far
    double* rates,                  // (P, jobs) averaged arrivals
    double* overheads,              // (2, P, groups) of the last two slots
    double* gain,                   // (P, slots)
    double* overhead,               // (P, slots)
    double* excess,                 // (P, slots)
    Sum* partial, const double* stats, Pair* price, REAL* eta, const Long* clock,
    double unit,  // 1/scale
    double pace,     // constant step; 0: AdaGrad
    int problems, int jobs, int K, int slots,
    int size,          // jobs of a block
    int memory_slots,  // slots over which arrivals are averaged for the gradient; 0: the gradient is that of the slot
    int lag,           // 1: the sums are those of the last slot's decision, not of this one's
    int everyone,      // 1: every job counts as present in the decision
    int ahead) {       // 1 to close what the last slot left open
  int groups = (jobs + size - 1) / size, problem = blockIdx.x / (groups + 1), group = blockIdx.x % (groups + 1);
  int cells = size * K, stride = jobs * K + 1;
  Long now = clock[0] + ahead;
  if (group == groups) {
    double gained = 0.0, square = 0.0, worst = 0.0, cost = 0.0;
    for (int block = problem_block[problem] + threadIdx.x; block < problem_block[problem + 1]; block += blockDim.x) {
      gained += stats[block * STATS];
      square += stats[block * STATS + 1];
      worst = worst > stats[block * STATS + 2] ? worst : stats[block * STATS + 2];
    }
    for (int g = threadIdx.x; g < groups; g += blockDim.x)
      cost += overheads[(((now + 1) & 1) * problems + problem) * groups + g];
    block_total((double*)memory, gained, square, cost, worst);
    if (threadIdx.x > 0) return;
    Long closed = now - 1, charged = now - 1 - lag;
    double squared = squares[problem];
    if (closed >= 0 && closed < slots) {
      gain[problem * (Long)slots + closed] = gained;
      excess[problem * (Long)slots + closed] = worst;
      squares[problem] = squared += square;
    }
    if (charged >= 0 && charged < slots) overhead[problem * (Long)slots + charged] = cost;
    eta[problem] = (REAL)(pace > 0.0 ? pace : squared > 0.0 ? length[problem] / sqrt(squared) : 3.0);
    return;
  }
  int c = threadIdx.x % cells;
  Long sum = cell_total(partial, problem_row[problem], problem_row[problem + 1], stride, group * cells + c, cells);
  double* amounts = (double*)(memory + blockDim.x);
  if (threadIdx.x < cells) amounts[c] = (double)sum * unit;
  __syncthreads();
  double* costs = amounts + cells;
  int job = group * size + threadIdx.x;
  if (threadIdx.x < size) {
    costs[threadIdx.x] = 0.0;
    if (job < jobs) {
      const double* beta = betas + ((Long)problem * jobs + job) * K;
      const unsigned char* arrived = arrivals + ((Long)problem * slots) * jobs + job;
      bool present = now < slots && arrived[now * jobs];
      Long priced = now - lag;
      bool pays = priced >= 0 && priced < slots && arrived[priced * jobs];
      int best = 0;
      double highest = beta[0] * amounts[threadIdx.x * K];
      for (int k = 1; k < K; k++) {
        double value = beta[k] * amounts[threadIdx.x * K + k];
        if (value > highest) best = k, highest = value;
      }
      costs[threadIdx.x] = pays ? highest : 0.0;
      double weight = present || everyone ? 1.0 : 0.0;
      if (memory_slots && now < slots) {
        double& rate = rates[(Long)problem * jobs + job];
        double seen = (double)(clock[1] + now + 1);
        double share = seen + 1.0 < memory_slots ? seen + 1.0 : (double)memory_slots;
        rate += ((present ? 1.0 : 0.0) - rate) / share;
        weight = rate;
      }
      Pair* out = price + (Long)problem * stride + (Long)job * K;
      for (int k = 0; k < K; k++) {
        REAL charge = k == best && !lag ? (REAL)(weight * beta[k]) : ZERO;
        out[k] = Pair{(REAL)weight, present ? -charge : charge};
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double cost = 0.0;
    for (int j = 0; j < size; j++) cost += costs[j];
    overheads[((now & 1) * problems + problem) * groups + group] = cost;
  }
}
