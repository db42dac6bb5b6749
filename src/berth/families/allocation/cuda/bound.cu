// An upper bound on all allocations from any dual (berth.families.allocation.kernels.bound), in float64 throughout.
//
// With p fixed, each segment's maximum is at most Σ max_y (w f(y) − (w β p + τ) y) + τ c for any τ ≥ 0.

// The y that maximises f(y) − q y, before clipping, and −dy/dq.
__device__ inline double respond(const Batch& b, int kind, double alpha, double q, double& fall) {
  if (kind == LINEAR) {
    fall = 0.0;
    return alpha > q ? 1e300 : -1.0;
  }
  if (kind == LOG) {
    fall = alpha / (q * q);
    return alpha / q - 1.0;
  }
  if (kind == RECIPROCAL) {
    double root = 1.0 / sqrt(q);
    fall = 0.5 * root * root * root;
    return root - alpha;
  }
  if (kind == POLY) {
    double ratio = 0.5 * alpha / q;
    fall = 2.0 * ratio * ratio / q;
    return ratio * ratio - 1.0;
  }
  // a table: the knots between which the slope falls to q
  const REAL* slopes = b.slopes + (Long)(kind - TABLE) * b.knots;
  double step = b.steps[kind - TABLE], scaled = q / alpha;
  int low = 0, high = b.knots - 1;
  fall = 0.0;
  if (slopes[high] >= scaled) return 1e300;
  if (slopes[low] <= scaled) return 0.0;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (slopes[middle] >= scaled) low = middle; else high = middle;
  }
  double width = step / ((double)slopes[low] - (double)slopes[high]);
  fall = width / alpha;
  return step * low + ((double)slopes[low] - scaled) * width;
}

__device__ inline double utility(const Batch& b, int kind, double alpha, double y) {
  if (kind == LINEAR) return alpha * y;
  if (kind == LOG) return alpha * log1p(y);
  if (kind == RECIPROCAL) return y / (alpha * (y + alpha));
  if (kind == POLY) return alpha * (sqrt(y + 1.0) - 1.0);
  return alpha * (double)knot_value(b, kind - TABLE, (REAL)y);
}

__device__ inline double steepest(const Batch& b, int kind, double alpha) {
  if (kind == LINEAR || kind == LOG) return alpha;
  if (kind == RECIPROCAL) return 1.0 / (alpha * alpha);
  if (kind == POLY) return 0.5 * alpha;
  return alpha * (double)b.slopes[(Long)(kind - TABLE) * b.knots];
}

// The bound of each block's segments; `tau` are first guesses of the multipliers; the rows of `dual`
// (P, J, K) times `factor` have the sum 1.
extern "C" __global__ void __launch_bounds__(THREADS)
    bound(BATCH, const double* weight, const double* betas, const double* dual, const REAL* tau, double* bounds,
          double factor, int jobs) {
  Batch b = THE_BATCH;
  int problem = b.block_problem[blockIdx.x], lane = threadIdx.x % LANES;
  int first_block = b.problem_block[problem], blocks = b.problem_block[problem + 1] - first_block;
  int warps = blockDim.x / LANES, last_tile = b.problem_tile[problem + 1];
  const REAL* caps = b.cap + (Long)problem * b.stride;
  const double* weights = weight + (Long)problem * jobs;
  const double *beta = betas + (Long)problem * jobs * RESOURCES, *p = dual + (Long)problem * jobs * RESOURCES;
#if SHARED
  double *own_weights = (double*)memory, *own_prices = own_weights + jobs;
  for (int i = threadIdx.x; i < jobs; i += blockDim.x) own_weights[i] = weights[i];
  for (int i = threadIdx.x; i < jobs * RESOURCES; i += blockDim.x) own_prices[i] = beta[i] * p[i] * factor;
  weights = own_weights;
  __syncthreads();
#define PRICE(at) own_prices[at]
#else
#define PRICE(at) (beta[at] * p[at] * factor)
#endif
  double total = 0.0, none = 0.0, nothing = 0.0, null = 0.0;
  for (int tile = b.problem_tile[problem] + ((int)blockIdx.x - first_block) * warps + (int)threadIdx.x / LANES;
       tile < last_tile; tile += blocks * warps) {
    int kind = b.kind[tile], first = b.start[tile], rows = b.start[tile + 1] - first;
    Long segment = (Long)tile * LANES + lane;
    const CELL* cell = b.cell + (Long)first * LANES + lane;
    double alpha = b.alpha[segment], c = b.limit[segment], steep = steepest(b, kind, alpha), top = 0.0;
    for (int i = 0; i < rows; i++) {
      int at = cell[(Long)i * LANES];
      if (at == b.stride - 1 || !(weights[at / RESOURCES] > 0.0)) continue;
      double reach = weights[at / RESOURCES] * (steep - PRICE(at));
      top = top > reach ? top : reach;
    }
    double t = tau[segment], left = 0.0, right = top, filled = 0.0, inside = 0.0, here = 0.0;
    if (!(t > 0.0 && t < top)) t = 0.0;
    bool tried_zero = false;
    for (int round = 0; round < EVALUATIONS; round++) {
      filled = 0.0, inside = 0.0;
      for (int i = 0; i < rows; i++) {
        int at = cell[(Long)i * LANES];
        if (at == b.stride - 1) continue;
        double w = weights[at / RESOURCES], cap = caps[at], fall;
        if (!(w > 0.0)) continue;
        double free = respond(b, kind, alpha, PRICE(at) + t / w, fall), kept = free < 0.0 ? 0.0 : free > cap ? cap : free;
        filled += kept;
        inside += kept == free ? fall / w : 0.0;
      }
      double excess = filled - c;
      if (excess > 0.0) left = t; else right = t;
      tried_zero |= t == 0.0;
      if ((excess <= 0.0 && t == 0.0) || fabs(excess) <= 1e-9 * c || right - left <= 1e-12 * top) break;
      double next = t + excess / (inside > 1e-300 ? inside : 1e-300);
      t = next > left && next < right ? next : next <= 0.0 && !tried_zero ? 0.0 : 0.5 * (left + right);
    }
    here = t * c;
    for (int i = 0; i < rows; i++) {
      int at = cell[(Long)i * LANES];
      if (at == b.stride - 1) continue;
      double w = weights[at / RESOURCES], cap = caps[at], fall;
      if (!(w > 0.0)) continue;
      double q = PRICE(at) + t / w, free = respond(b, kind, alpha, q, fall), kept = free < 0.0 ? 0.0 : free > cap ? cap : free;
      here += w * (utility(b, kind, alpha, kept) - q * kept);
    }
    total += here;
  }
  block_total((double*)memory, total, none, nothing, null);
  if (threadIdx.x == 0) bounds[blockIdx.x] = total;
}
