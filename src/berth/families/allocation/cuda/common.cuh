// What all allocation kernels share: the layout of a batch of problems, utilities, exact sums by cell.
//
// Compiled at run time (NVRTC) with these macros:
//   REAL    float or double
//   CELL    unsigned short or int: the type of a cell number
//   ROWS    most rows of a tile if a thread keeps its rows in registers; 0: they are read again from memory
//   SHARED  1 if a block keeps the tables of its problem in shared memory; 0: tables stay in global memory
//   NARROW  1 if a block's sums fit into 32 bits; 0: 64 bits
//
// A tile is 32 segments (server, resource) of one utility code, one for each thread of a warp; element [row][lane] is
// the row-th channel of the lane's segment. A cell is a pair (job, resource) of one problem; the spare cell at the end
// belongs to padding. A block works for one problem. No thread depends on another except at __syncthreads.
//
// Sums by cell are integers (fixed point): additions in any order give the same bits.

typedef long long Long;
typedef unsigned long long Bits;

extern __shared__ Long memory[];

#define LINEAR 0
#define LOG 1
#define RECIPROCAL 2
#define POLY 3
#define TABLE 4

#define LANES 32
#define MOST 200  // evaluations of a capacity's multiplier
#if ROWS
#define EACH_ROW _Pragma("unroll") for (int i = 0; i < ROWS; i++) if (i < rows)
#else
#define EACH_ROW for (int i = 0; i < rows; i++)
#endif

// Rows of a segment: kept in registers, or in an array in memory.
#if ROWS
#define ROW_VALUES(NAME, SPACE) REAL NAME[ROWS]
#define ROW(NAME, i) NAME[i]
#else
#define ROW_VALUES(NAME, SPACE) REAL* NAME = SPACE
#define ROW(NAME, i) NAME[(Long)(i) * LANES]
#endif

#define ZERO ((REAL)0)
#define ONE ((REAL)1)

struct Pair {
  REAL weight, charge;
};

struct Batch {  // P problems, blocks of threads, tiles; pointers into device memory
  const int* block_problem;  // (blocks,)
  const int* problem_block;  // (P+1,) first block of each problem
  const int* problem_tile;   // (P+1,) first tile of each problem
  const int* start;          // (tiles+1,) first row of each tile
  const int* kind;           // (tiles,) utility code
  const REAL* alpha;         // (tiles, 32)
  const REAL* limit;         // (tiles, 32) capacity; 0 in padding
  const CELL* cell;          // (rows, 32)
  const REAL* cap;           // (P, stride) request by cell
  const REAL* slopes;        // (U, knots) utility tables
  const REAL* values;        // (U, knots)
  const REAL* steps;         // (U,)
  int knots;
  int stride;    // cells + 1
  double scale;  // sums are whole multiples of 1/scale
};

// A Batch among the arguments of a kernel, and the Batch made of them.
#define BATCH                                                                                                       \
  const int *block_problem, const int *problem_block, const int *problem_tile, const int *start, const int *kind,   \
      const REAL *alpha, const REAL *limit, const CELL *cell, const REAL *cap, const REAL *slopes,                  \
      const REAL *values, const REAL *steps, int knots, int stride, double scale
#define THE_BATCH                                                                                                   \
  Batch {                                                                                                           \
    block_problem, problem_block, problem_tile, start, kind, alpha, limit, cell, cap, slopes, values, steps, knots, \
        stride, scale                                                                                               \
  }

__device__ inline REAL least(REAL a, REAL b) { return a < b ? a : b; }
__device__ inline REAL most(REAL a, REAL b) { return a > b ? a : b; }

// 1/x and 1/√x of a normal number x > 0, to an ulp or two: without the branches for other numbers.
__device__ inline float inverse(float x) {
#ifdef __CUDACC__
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

__device__ inline double inverse(double x) {
#ifdef __CUDACC__
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  r = fma(r, fma(-x, r, 1.0), r);
  return fma(r, fma(-x, r, 1.0), r);
#else
  return 1.0 / x;
#endif
}

__device__ inline float inverse_root(float x) {
#ifdef __CUDACC__
  return rsqrtf(x);
#else
  return 1.0f / sqrt(x);
#endif
}

__device__ inline double inverse_root(double x) {
#ifdef __CUDACC__
  double r;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  r = fma(0.5 * r, fma(-x * r, r, 1.0), r);
  return fma(0.5 * r, fma(-x * r, r, 1.0), r);
#else
  return 1.0 / sqrt(x);
#endif
}

__device__ inline REAL knot_slope(const Batch& b, int table, REAL y) {
  const REAL* slopes = b.slopes + (Long)table * b.knots;
  REAL place = y / b.steps[table];
  if (!(place < (REAL)(b.knots - 1))) return slopes[b.knots - 1];
  int i = (int)place;
  return slopes[i] + (slopes[i + 1] - slopes[i]) * (place - (REAL)i);
}

__device__ inline REAL knot_value(const Batch& b, int table, REAL y) {
  const REAL *slopes = b.slopes + (Long)table * b.knots, *values = b.values + (Long)table * b.knots;
  REAL step = b.steps[table], place = y / step;
  if (!(place < (REAL)(b.knots - 1))) return values[b.knots - 1] + slopes[b.knots - 1] * (y - (REAL)(b.knots - 1) * step);
  int i = (int)place;
  REAL d = y - (REAL)i * step;
  return values[i] + d * (slopes[i] + (REAL)0.5 * (slopes[i + 1] - slopes[i]) * (d / step));
}

// f'(y), and f(y) except for a log, whose factors 1 + y are multiplied instead (`Product`).
__device__ inline REAL marginal(const Batch& b, int kind, REAL alpha, REAL y, REAL& value) {
  if (kind == LINEAR) {
    value = alpha * y;
    return alpha;
  }
  if (kind == LOG) {
    value = ZERO;
    return alpha * inverse(y + ONE);
  }
  if (kind == RECIPROCAL) {
    REAL q = inverse(y + alpha);
    value = y * q * inverse(alpha);
    return q * q;
  }
  if (kind == POLY) {
    REAL r = inverse_root(y + ONE);
    value = alpha * ((y + ONE) * r - ONE);
    return (REAL)0.5 * alpha * r;
  }
  value = alpha * knot_value(b, kind - TABLE, y);
  return alpha * knot_slope(b, kind - TABLE, y);
}

// Σ ln(1 + y): one logarithm serves many factors.
struct Product {
  REAL factors, sum;
  __device__ Product() : factors(ONE), sum(ZERO) {}
  __device__ void add(REAL y) {
    factors *= y + ONE;
    if (factors > (REAL)1e15) {
      sum += log(factors);
      factors = ONE;
    }
  }
  __device__ REAL total() { return factors == ONE ? sum : sum + log(factors); }
};

__device__ inline Long whole(float amount) { return __float2ll_rn(amount); }
__device__ inline Long whole(double amount) { return __double2ll_rn(amount); }

// A sum by cell in shared memory. Hardware adds 32 bits there; 64 bits are two of them and a carry: `sums` holds all
// low halves, then all high halves.
__device__ inline void add_wide(Long* sums, int stride, int c, REAL amount) {
  unsigned* halves = (unsigned*)sums;
  Bits bits = (Bits)whole(amount);
  unsigned low = (unsigned)bits, high = (unsigned)(bits >> 32);
  unsigned before = atomicAdd(halves + c, low);
  high += before + low < before;
  if (high) atomicAdd(halves + stride + c, high);
}

__device__ inline Long wide_sum(const Long* sums, int stride, int c) {
  const unsigned* halves = (const unsigned*)sums;
  return (Long)(((Bits)halves[stride + c] << 32) | halves[c]);
}

#if NARROW
typedef int Sum;
__device__ inline void add_shared(Sum* sums, int, int c, REAL amount) {
  atomicAdd(sums + c, __float2int_rn((float)amount));
}
__device__ inline Sum shared_sum(const Sum* sums, int, int c) { return sums[c]; }
#else
typedef Long Sum;
#define add_shared add_wide
#define shared_sum wide_sum
#endif

// Total of a cell's partial sums, for the first slice of threads; every thread of the block calls it.
// A block has `slices` slices of `cells` threads; `memory` is overwritten.
template <class Number>
__device__ inline Long cell_total(Number* partial, int first, int last, int stride, int cell, int cells) {
  int c = threadIdx.x % cells, slice = threadIdx.x / cells, slices = blockDim.x / cells;
  Long sum = 0;
  if (cell < stride - 1) {
#pragma unroll 8
    for (int row = first + slice; row < last; row += slices) {
      sum += partial[(Long)row * stride + cell];
#if !SHARED
      partial[(Long)row * stride + cell] = 0;
#endif
    }
  }
  __syncthreads();
  memory[threadIdx.x] = sum;
  __syncthreads();
  if (slice == 0)
    for (int s = 1; s < slices; s++) sum += memory[s * cells + c];
  return sum;
}

#define TOTALS 4  // numbers of `block_total`

// Totals of three numbers and the maximum of a fourth over a block, for every thread; every thread calls it.
__device__ inline void block_total(double* space, double& a, double& b, double& c, double& d) {
  int t = threadIdx.x, size = blockDim.x;
  double *first = space, *second = first + size, *third = second + size, *fourth = third + size;
  __syncthreads();
  first[t] = a, second[t] = b, third[t] = c, fourth[t] = d;
  __syncthreads();
  int width = 1;
  while (width < size) width *= 2;
  for (width /= 2; width > 0; width /= 2) {
    if (t < width && t + width < size) {
      first[t] += first[t + width];
      second[t] += second[t + width];
      third[t] += third[t + width];
      fourth[t] = fourth[t] > fourth[t + width] ? fourth[t] : fourth[t + width];
    }
    __syncthreads();
  }
  a = first[0], b = second[0], c = third[0], d = fourth[0];
}
