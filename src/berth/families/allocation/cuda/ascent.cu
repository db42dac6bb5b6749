// The concave programme of the allocation family (berth.families.allocation.kernels.ascent): iterations, value, bound.
//
// RESOURCES is one more macro. A weight of 0 means that the job is absent: its elements get nothing. Tables by cell:
// charge = w β p, negative if the job is present; by job: weight, 1 if it is 0.

#define SHARES 6.0
#define DAMPING 1.5
#define PINNED 0.1
#define EVALUATIONS 100

struct Ascent {
  const double* weight;  // (P, J)
  const REAL* charge;    // (P, stride)
  const double* loose;   // (P,) factor of ρ
  const REAL* bends;     // (U,) sharpest curvature of each table
  int jobs;
};
#define ASCENT const double *weight, const REAL *charge, const double *loose, const REAL *bends, int jobs
#define THE_ASCENT Ascent{weight, charge, loose, bends, jobs}

// Where a block works, and the tables of its problem: sums (two by cell), charges, requests, weights.
#define OPEN_BLOCK(TABLES)                                                                                       \
  int problem = b.block_problem[blockIdx.x], lane = threadIdx.x % LANES;                                         \
  int first_block = b.problem_block[problem], blocks = b.problem_block[problem + 1] - first_block;               \
  int warps = blockDim.x / LANES, last_tile = b.problem_tile[problem + 1];                                       \
  const REAL *charges = a.charge + (Long)problem * stride, *caps = b.cap + (Long)problem * stride;               \
  const double* weights = a.weight + (Long)problem * a.jobs;                                                     \
  if (SHARED) {                                                                                                  \
    REAL *own_charges = (REAL*)(memory + (TABLES)*stride), *own_caps = own_charges + stride;                     \
    double* own_weights = (double*)(memory + (TABLES)*stride + (2 * stride * sizeof(REAL) + 7) / 8);             \
    for (int i = threadIdx.x; i < stride; i += blockDim.x) {                                                     \
      for (int table = 0; table < (TABLES); table++) memory[table * stride + i] = 0;                             \
      own_charges[i] = charges[i];                                                                               \
      own_caps[i] = caps[i];                                                                                     \
    }                                                                                                            \
    for (int i = threadIdx.x; i < a.jobs; i += blockDim.x) own_weights[i] = weights[i];                          \
    charges = own_charges, caps = own_caps, weights = own_weights;                                               \
    __syncthreads();                                                                                             \
  }

#define EACH_TILE                                                                                              \
  for (int tile = b.problem_tile[problem] + ((int)blockIdx.x - first_block) * warps + (int)threadIdx.x / LANES; \
       tile < last_tile; tile += blocks * warps)

#define OPEN_TILE                                                                                     \
  int kind = b.kind[tile], first = b.start[tile], rows = b.start[tile + 1] - first;                   \
  Long place = (Long)first * LANES + lane, segment = (Long)tile * LANES + lane;                       \
  REAL alpha = b.alpha[segment], c = b.limit[segment];                                                \
  const CELL* cell = b.cell + place;                                                                  \
  (void)kind, (void)alpha, (void)c;

// The padding's cell has no job; its request is 0, so any weight will do.
#define WEIGHT(at) ((at) < stride - 1 ? (REAL)weights[(at) / RESOURCES] : ONE)

#if SHARED
#define ADD_TO(table, c, amount) add_wide(memory + (table)*stride, stride, c, amount)
#define CLOSE_SUMS(table, partial)                                                                    \
  for (int i = threadIdx.x; i < stride; i += blockDim.x)                                              \
    (partial)[(Long)blockIdx.x * stride + i] = wide_sum(memory + (table)*stride, stride, i);
#else
#define ADD_TO(table, c, amount) \
  atomicAdd((Bits*)((table) ? partial_loose : partial) + (Long)problem * stride + (c), (Bits)whole(amount))
#define CLOSE_SUMS(table, partial)
#endif

__device__ inline REAL slope_at_zero(const Batch& b, int kind, REAL alpha) {
  REAL value, steep = fabs(marginal(b, kind, alpha, ZERO, value));
  return steep > ZERO ? steep : ONE;
}

// A cold start at half of each request; the first iteration makes it feasible.
extern "C" __global__ void __launch_bounds__(THREADS) forget(BATCH, ASCENT, REAL* remembered) {
  Batch b = THE_BATCH;
  Ascent a = THE_ASCENT;
  OPEN_BLOCK(0)
  EACH_TILE {
    OPEN_TILE
    EACH_ROW remembered[place + (Long)i * LANES] = (REAL)0.5 * caps[cell[(Long)i * LANES]];
  }
}

// Begin a call: y is what each present job had when it last had a weight, within its request; ρ of each segment.
extern "C" __global__ void __launch_bounds__(THREADS)
    recall(BATCH, ASCENT, const REAL* remembered, REAL* damp, REAL* y) {
  Batch b = THE_BATCH;
  Ascent a = THE_ASCENT;
  OPEN_BLOCK(0)
  EACH_TILE {
    OPEN_TILE
    REAL span = ZERO, count = ZERO;
    EACH_ROW {
      int at = cell[(Long)i * LANES];
      REAL room = signbit(charges[at]) ? caps[at] : ZERO;
      y[place + (Long)i * LANES] = least(most(remembered[place + (Long)i * LANES], ZERO), room);
      span += room;
      count += room > ZERO ? ONE : ZERO;
    }
    REAL share = (REAL)SHARES * least(c, span);
    damp[segment] = slope_at_zero(b, kind, alpha) * (share > ZERO ? count / share : ONE);
  }
}

// f'(y) and |f''(y)|; for a table its sharpest.
__device__ inline REAL model(const Batch& b, const Ascent& a, int kind, REAL alpha, REAL y, REAL& bend) {
  if (kind == LINEAR) {
    bend = ZERO;
    return alpha;
  }
  if (kind == LOG) {
    REAL q = inverse(y + ONE), g = alpha * q;
    bend = g * q;
    return g;
  }
  if (kind == RECIPROCAL) {
    REAL q = inverse(y + alpha), g = q * q;
    bend = (REAL)2 * g * q;
    return g;
  }
  if (kind == POLY) {
    REAL r = inverse_root(y + ONE), g = (REAL)0.5 * alpha * r;
    bend = (REAL)0.5 * g * r * r;
    return g;
  }
  bend = alpha * a.bends[kind - TABLE];
  return alpha * knot_slope(b, kind - TABLE, y);
}

// One iteration: y⁺ = Π_h(y + (w f'(y) − w β p)/h), and the sums by cell of 2y⁺ − y and of w/h over what can move.
extern "C" __global__ void __launch_bounds__(THREADS)
    iterate(BATCH, ASCENT, const REAL* damp, REAL* scratch, REAL* tau, REAL* y, Long* partial, Long* partial_loose,
            double loose_scale, Long elements) {
  Batch b = THE_BATCH;
  Ascent a = THE_ASCENT;
  OPEN_BLOCK(2)
  const REAL eps = (REAL)4 * (sizeof(REAL) == 8 ? (REAL)2.220446049250313e-16 : (REAL)1.1920929e-07f);
  const REAL scale_y = (REAL)b.scale, scale_d = (REAL)loose_scale;
  EACH_TILE {
    OPEN_TILE
    REAL damping = damp[segment] * (REAL)a.loose[problem];
    ROW_VALUES(z, scratch + place);
    ROW_VALUES(d, scratch + elements + place);
#if ROWS
    REAL room[ROWS];
#define ROOM(i) room[i]
#define KEEP_ROOM(i, cap) room[i] = cap
#else
#define ROOM(i) caps[cell[(Long)(i) * LANES]]
#define KEEP_ROOM(i, cap)
#endif
    REAL fill = ZERO, top = ZERO;
    // an absent element has z = 0 and does not move, so that it stays 0 whatever its request
    EACH_ROW {
      int at = cell[(Long)i * LANES];
      REAL w = WEIGHT(at), price = charges[at], cap = caps[at], bend, di = ZERO, zi = ZERO;
      KEEP_ROOM(i, cap);
      if (signbit(price) && cap > ZERO) {
        REAL now = y[place + (Long)i * LANES], slope = model(b, a, kind, alpha, now, bend);
        REAL g = w * slope + price, h = w * ((REAL)DAMPING * bend + damping);
        di = inverse(h);
        zi = now + g * di;
        fill += least(most(zi, ZERO), cap);
        top = most(top, now * h + g);
      }
      ROW(d, i) = di;
      ROW(z, i) = zi;
    }
    REAL t = tau[segment];
    if (fill > c) {
      if (!(t > ZERO && t < top)) t = (REAL)0.5 * top;
      REAL low = ZERO, high = top, near = eps * fill;
      for (int round = 0; round < EVALUATIONS; round++) {
        REAL filling = ZERO, moving = ZERO;
        EACH_ROW {
          REAL free = ROW(z, i) - t * ROW(d, i), kept = least(most(free, ZERO), ROOM(i));
          filling += kept;
          moving += kept == free ? ROW(d, i) : ZERO;
        }
        REAL excess = filling - c;
        if (excess > ZERO) low = t; else high = t;
        if (!((excess > near || excess < -near) && high - low > eps * top)) break;
        REAL next = t + excess / moving;  // NaN if nothing moves: then the midpoint is taken
        t = next > low && next < high ? next : (REAL)0.5 * (low + high);
      }
    } else {
      t = ZERO;
    }
    tau[segment] = t;
    EACH_ROW {
      int at = cell[(Long)i * LANES];
      REAL free = ROW(z, i) - t * ROW(d, i), kept = least(most(free, ZERO), ROOM(i));
      REAL before = y[place + (Long)i * LANES], w = WEIGHT(at);
      y[place + (Long)i * LANES] = kept;
      if (signbit(charges[at])) {
        ADD_TO(0, at, (kept + (kept - before)) * scale_y);
        ADD_TO(1, at, w * (kept == free ? ROW(d, i) : (REAL)PINNED * ROW(d, i)) * scale_d);
      }
    }
  }
  __syncthreads();
  CLOSE_SUMS(0, partial)
  CLOSE_SUMS(1, partial_loose)
}

// Step of the dual of some jobs of one problem: p ← Π_Δ(p + σ β (2S(y⁺) − S(y))); the new charges, and the sum of all p.
extern "C" __global__ void adjust(const int* problem_row, const double* weight, const double* betas, const double* pace,
                                  Long* partial, Long* partial_loose, double* dual, double* total, REAL* charge,
                                  double unit, double loose_unit, int jobs, int size) {
  const int K = RESOURCES;
  int groups = (jobs + size - 1) / size, problem = blockIdx.x / groups, group = blockIdx.x % groups;
  int cells = size * K, stride = jobs * K + 1, cell = group * cells + (int)threadIdx.x % cells;
  int first = problem_row[problem], last = problem_row[problem + 1];
  Long ahead = cell_total(partial, first, last, stride, cell, cells);
  Long loose = cell_total(partial_loose, first, last, stride, cell, cells);
  double *amounts = (double*)(memory + blockDim.x), *give = amounts + cells;
  if (threadIdx.x < cells) {
    amounts[threadIdx.x] = (double)ahead * unit;
    give[threadIdx.x] = (double)loose * loose_unit;
  }
  __syncthreads();
  int job = group * size + threadIdx.x;
  if ((int)threadIdx.x >= size || job >= jobs) return;
  double w = weight[(Long)problem * jobs + job];
  if (!(w > 0.0)) return;
  const double* beta = betas + ((Long)problem * jobs + job) * K;
  double* p = dual + ((Long)problem * jobs + job) * K;
  double moved[K], stiff = 1e-30, top = -1e300, level = -1.0;
  for (int k = 0; k < K; k++) {
    double each = beta[k] * beta[k] * give[threadIdx.x * K + k];
    stiff = stiff > each ? stiff : each;
  }
  for (int k = 0; k < K; k++) {
    moved[k] = p[k] + pace[problem] / stiff * (beta[k] * amounts[threadIdx.x * K + k]);
    top = top > moved[k] ? top : moved[k];
  }
  // onto the simplex: level, drop negative entries, repeat; relative to the largest no digits are lost
  for (int k = 0; k < K; k++) moved[k] = moved[k] - top > -1.0 ? moved[k] - top : -1.0;
  for (int round = 0, members = 0; round < K; round++) {
    double mass = -1.0;
    int count = 0;
    for (int k = 0; k < K; k++)
      if (moved[k] > level) mass += moved[k], count++;
    if (count == members) break;
    members = count;
    level = mass / count;
  }
  REAL* out = charge + (Long)problem * stride + (Long)job * K;
  double* totals = total + ((Long)problem * jobs + job) * K;
  for (int k = 0; k < K; k++) {
    double value = moved[k] - level > 0.0 ? moved[k] - level : 0.0;
    p[k] = value;
    totals[k] += value;
    out[k] = -(REAL)(w * beta[k] * value);
  }
}

// Charges of all jobs from the dual, at the beginning of a call.
extern "C" __global__ void charges(const double* weight, const double* betas, const double* dual, REAL* charge,
                                   int problems, int jobs) {
  const int K = RESOURCES;
  for (Long i = (Long)blockIdx.x * blockDim.x + threadIdx.x; i < (Long)problems * jobs;
       i += (Long)gridDim.x * blockDim.x) {
    REAL* out = charge + (i / jobs) * ((Long)jobs * K + 1) + (i % jobs) * K;
    for (int k = 0; k < K; k++) {
      REAL value = (REAL)(weight[i] * betas[i * K + k] * dual[i * K + k]);
      out[k] = weight[i] > 0.0 ? -value : value;
    }
  }
}

// End a call: remove the last rounding, so that Σ y ≤ c and y ≤ a hold in any order of summation; remember y.
// Leaves Σ v f(y) of each block in `stats` and the sums by cell of y; v (P, J) are the weights of the reward.
extern "C" __global__ void __launch_bounds__(THREADS)
    settle(BATCH, ASCENT, const double* rewarded, REAL* remembered, REAL* y, Long* partial, Long* partial_loose,
           double* stats) {
  Batch b = THE_BATCH;
  Ascent a = THE_ASCENT;
  OPEN_BLOCK(1)
  const REAL eps = sizeof(REAL) == 8 ? (REAL)2.220446049250313e-16 : (REAL)1.1920929e-07f, scale_y = (REAL)b.scale;
  const double* reward_weights = rewarded + (Long)problem * a.jobs;
  double gained = 0.0, none = 0.0, nothing = 0.0, worst = 0.0;
  EACH_TILE {
    OPEN_TILE
    REAL above = ZERO, filled = ZERO;
    double gain = 0.0;
    Product logs;
    EACH_ROW above += y[place + (Long)i * LANES];
    REAL target = most(c - eps * (REAL)(rows + 2) * c, ZERO), shrink = above > target ? target / above : ONE;
    EACH_ROW {
      int at = cell[(Long)i * LANES];
      REAL held = least(shrink * y[place + (Long)i * LANES], caps[at]), value;
      y[place + (Long)i * LANES] = held;
      if (signbit(charges[at])) remembered[place + (Long)i * LANES] = held;
      filled += held;
      if (held > ZERO) {
        REAL v = (REAL)reward_weights[at / RESOURCES];
        marginal(b, kind, alpha, held, value);
        if (kind == LOG && v == ONE) logs.add(held);
        else gain += v * (kind == LOG ? alpha * log1p(held) : value);
        ADD_TO(0, at, held * scale_y);
      }
    }
    gained += gain + alpha * logs.total();
    double over = ((double)filled - c) / (1.0 + c);
    worst = worst > over ? worst : over;
  }
  __syncthreads();
  CLOSE_SUMS(0, partial)
  block_total((double*)memory, gained, none, nothing, worst);
  if (threadIdx.x == 0) stats[blockIdx.x * 2] = gained, stats[blockIdx.x * 2 + 1] = worst;
}

// Σ v max_k β S of some jobs of one problem, from the sums that `settle` left.
extern "C" __global__ void overheads(const int* problem_row, const double* rewarded, const double* betas, Long* partial,
                                     double* costs, double unit, int jobs, int size) {
  const int K = RESOURCES;
  int groups = (jobs + size - 1) / size, problem = blockIdx.x / groups, group = blockIdx.x % groups;
  int cells = size * K, stride = jobs * K + 1, cell = group * cells + (int)threadIdx.x % cells;
  Long sum = cell_total(partial, problem_row[problem], problem_row[problem + 1], stride, cell, cells);
  double *amounts = (double*)(memory + blockDim.x), *each = amounts + cells;
  if (threadIdx.x < cells) amounts[threadIdx.x] = (double)sum * unit;
  __syncthreads();
  int job = group * size + threadIdx.x;
  if ((int)threadIdx.x < size) {
    each[threadIdx.x] = 0.0;
    if (job < jobs) {
      const double* beta = betas + ((Long)problem * jobs + job) * K;
      double highest = 0.0;
      for (int k = 0; k < K; k++) {
        double value = beta[k] * amounts[threadIdx.x * K + k];
        highest = highest > value ? highest : value;
      }
      each[threadIdx.x] = rewarded[(Long)problem * jobs + job] * highest;
    }
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  double cost = 0.0;
  for (int j = 0; j < size; j++) cost += each[j];
  costs[blockIdx.x] = cost;
}
