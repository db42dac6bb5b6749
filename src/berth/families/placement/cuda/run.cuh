// State of a placement run that one warp plays: servers, running and waiting tasks, greedy placement.
//
// Compiled at run time with the macro RESOURCES, and without fused multiply-adds: every number is made by the operations
// of `families.placement.kernels.run` in their order, so that gains have the same bits. What the CPU keeps in heaps and
// shelves is scanned here by 32 lanes: the task that ends next, the best server of a task, the first waiting task that a
// freed server can take.
//
// A block is one warp. All lanes call every function, with the same arguments unless said otherwise; what one lane
// writes, others read after __syncwarp.
//
// Axes: T tasks of all runs, N tasks of a run, R servers, Q kinds, K resources.

typedef long long Long;
typedef unsigned long long Bits;

extern __shared__ Long memory[];

#define LANES 32
#define ALL 0xffffffffu
#define NEVER __longlong_as_double(0x7ff0000000000000LL)

enum { ARRIVAL, WORK, VALUE, DECAY, DEADLINE, HEAVY, DEMAND };             // rows of `tasks`
enum { FULL, SPEED, CAPACITY, SLACK = CAPACITY + RESOURCES };              // rows of `servers`
enum { KIND_SPEED, RATE, LAUNCH };                                         // rows of `kinds`
enum { TOTAL, LAUNCH_SUM, SPEED_SUM, SWIFTEST, MEAN_RATE, WEIGHT };        // entries of `facts`

__device__ inline double larger(double a, double b) { return a > b ? a : b; }
__device__ inline double smaller(double a, double b) { return a < b ? a : b; }

// Number of lanes before this one in a ballot.
__device__ inline int before(unsigned who) { return __popc(who & ((1u << threadIdx.x) - 1)); }

__device__ inline Bits warp_least(Bits x) {
  unsigned high = (unsigned)(x >> 32), top = __reduce_min_sync(ALL, high);
  return (Bits)top << 32 | __reduce_min_sync(ALL, high == top ? (unsigned)x : ALL);
}

__device__ inline double warp_least(double x) {  // as integers in the order of the floats
  Bits bits = (Bits)__double_as_longlong(x), sign = 1ull << 63;
  bits = warp_least(bits & sign ? ~bits : bits | sign);
  return __longlong_as_double((Long)(bits & sign ? bits ^ sign : ~bits));
}

struct Run {
  const double *tasks, *servers, *kinds, *facts;
  const int* kind_of;                // (R,)
  double *free, *on_until, *scores;  // (K, R), (R,), (Q,)
  double *ends, *soonest;            // (stride,) end of each running task; the first of every 32
  int *running, *server, *line;      // (R,) tasks of a server, (stride,) server of a task, (stride,) waiting tasks by turn
  int T, N, R, Q, stride;            // stride: the most tasks of a run, a multiple of 32
  int live, waiting;                 // tasks that run, tasks in `line`
  int launches, launched;   // at this moment, and the server launched last
  double idle, beta, toll;  // beta and toll: the network's factor of launch costs, and its price
  double value, execution, launch;

  __device__ double task(int row, int i) const { return tasks[(Long)row * T + i]; }
  __device__ double kind(int row, int q) const { return kinds[row * Q + q]; }
  __device__ double machine(int row, int r) const { return servers[(Long)row * R + r]; }

  __device__ double worth(int i, double end) const {
    if (end > task(DEADLINE, i)) return 0.0;
    return larger(task(VALUE, i) - task(DECAY, i) * (end - task(ARRIVAL, i)), 0.0);
  }

  // Score of a task on a kind of server, without launch cost.
  __device__ double score(int i, int q, double now) const {
    double time = task(WORK, i) / kind(KIND_SPEED, q);
    return worth(i, now + time) - (kind(RATE, q) + toll) * task(HEAVY, i) * time;
  }

  __device__ double room(int k, int r) const { return free[k * R + r] + machine(SLACK + k, r); }

  __device__ bool fits(int i, int r) const {
    bool inside = true;
    for (int k = 0; k < RESOURCES; k++) inside = inside && task(DEMAND + k, i) <= room(k, r);
    return inside;
  }

  __device__ void reset() {
    int lane = threadIdx.x;
    for (int r = lane; r < R; r += LANES) {
      for (int k = 0; k < RESOURCES; k++) free[k * R + r] = machine(CAPACITY + k, r);
      on_until[r] = -NEVER;
      running[r] = 0;
    }
    for (int i = lane; i < stride; i += LANES) ends[i] = NEVER, server[i] = -1;
    for (int c = lane; c < stride / LANES; c += LANES) soonest[c] = NEVER;
    live = waiting = 0;
    value = execution = launch = 0.0;
    __syncwarp();
  }

  // ------------------------------------------------------------------ starts and ends

  __device__ void begin(int i, int r, double now) {
    int q = kind_of[r], lane = threadIdx.x;
    if (running[r] == 0 && !(now <= on_until[r])) {
      launch += kind(LAUNCH, q);
      launches++;
      launched = r;
    }
    double end = now + task(WORK, i) / kind(KIND_SPEED, q);
    value += worth(i, end);
    execution += kind(RATE, q) * task(HEAVY, i) * (end - now);
    live++;
    __syncwarp();
    for (int k = lane; k < RESOURCES; k += LANES) free[k * R + r] -= task(DEMAND + k, i);
    if (lane == 0) {
      running[r]++;
      on_until[r] = NEVER;
      server[i] = r;
      ends[i] = end;
      soonest[i / LANES] = smaller(soonest[i / LANES], end);
    }
    __syncwarp();
  }

  __device__ void finish(int i, int r, double now) {
    int lane = threadIdx.x, left = running[r] - 1;
    __syncwarp();
    for (int k = lane; k < RESOURCES; k += LANES)
      free[k * R + r] = left == 0 ? machine(CAPACITY + k, r) : free[k * R + r] + task(DEMAND + k, i);
    if (lane == 0) {
      running[r] = left;
      if (left == 0) on_until[r] = now + idle;
    }
    __syncwarp();
  }

  __device__ double next_end() const {
    double first = NEVER;
    for (int c = threadIdx.x; c < stride / LANES; c += LANES) first = smaller(first, soonest[c]);
    return warp_least(first);
  }

  // End all tasks that end now, by number; returns how many, and the server of the last.
  __device__ int finish_all(double now, int& freed) {
    int lane = threadIdx.x, ended = 0;
    for (int from = 0; from < stride / LANES; from += LANES) {
      bool here = from + lane < stride / LANES && soonest[from + lane] == now;
      for (unsigned chunks = __ballot_sync(ALL, here); chunks; chunks &= chunks - 1) {
        int chunk = from + __ffs(chunks) - 1, i = chunk * LANES + lane;
        double end = ends[i];
        int where = server[i];
        for (unsigned who = __ballot_sync(ALL, end == now); who; who &= who - 1) {
          int at = __ffs(who) - 1;
          freed = __shfl_sync(ALL, where, at);
          finish(chunk * LANES + at, freed, now);
          ended++;
        }
        if (end == now) ends[i] = end = NEVER;
        end = warp_least(end);
        if (lane == 0) soonest[chunk] = end;
        __syncwarp();
      }
    }
    live -= ended;
    return ended;
  }

  // ------------------------------------------------------------------ placing

  // Start a task where its score is largest, if that is above 0 anywhere: ties go to the server with the fewest whole
  // units of the first resource left, then to the first.
  __device__ bool place(int i, double now) {
    int lane = threadIdx.x;
    __syncwarp();  // all have read the last scores
    for (int q = lane; q < Q; q += LANES) scores[q] = score(i, q, now);
    __syncwarp();
    double best_score = 0.0;
    Long best_units = 0;
    int best = -1;
    for (int r = lane; r < R; r += LANES) {
      int q = kind_of[r];
      double here = scores[q];
      if (!(now <= on_until[r])) here -= beta * kind(LAUNCH, q);
      if (here <= 0.0 || here < best_score || !fits(i, r)) continue;
      Long units = (Long)room(0, r);
      if (here > best_score || units < best_units) best = r, best_score = here, best_units = units;
    }
    if (!__ballot_sync(ALL, best >= 0)) return false;
    Bits bits = (Bits)__double_as_longlong(best_score);  // above 0: in the order of the floats
    Bits units = bits == ~warp_least(~bits) ? (Bits)best_units : ~0ull;
    bool first = units == warp_least(units);
    begin(i, (int)__reduce_min_sync(ALL, first ? (unsigned)best : ALL), now);
    return true;
  }

  // Keep this lane's task in the line if it stays; `left` of the tasks before are kept.
  __device__ void keep(int i, bool stays, int& left) {
    unsigned who = __ballot_sync(ALL, stays);
    if (stays) line[left + before(who)] = i;
    left += __popc(who);
    __syncwarp();
  }

  // Try all waiting tasks, in their order.
  __device__ void place_all(double now) {
    int lane = threadIdx.x, left = 0;
    for (int from = 0; from < waiting; from += LANES) {
      int i = from + lane < waiting ? line[from + lane] : -1;
      bool stays = i >= 0 && task(DEADLINE, i) > now, hopeful = stays;
      // no server may have the room, or no kind may pay: room and scores only fall from here on
      for (int k = 0; k < RESOURCES; k++) {
        double most = -NEVER;
        for (int r = lane; r < R; r += LANES) most = larger(most, room(k, r));
        most = -warp_least(-most);
        hopeful = hopeful && task(DEMAND + k, i) <= most;
      }
      bool pays = false;
      for (int q = 0; hopeful && !pays && q < Q; q++) pays = score(i, q, now) > 0.0;
      for (unsigned who = __ballot_sync(ALL, pays); who; who &= who - 1) {
        int at = __ffs(who) - 1;
        if (place(__shfl_sync(ALL, i, at), now)) stays = stays && at != lane;
      }
      keep(i, stays, left);
    }
    waiting = left;
  }

  // Give the free capacity of a server to waiting tasks, in their order.
  __device__ void refill(int r, double now) {
    int lane = threadIdx.x, q = kind_of[r], left = 0;
    for (int from = 0; from < waiting; from += LANES) {
      int i = from + lane < waiting ? line[from + lane] : -1;
      bool stays = i >= 0 && task(DEADLINE, i) > now;
      bool next = stays && fits(i, r) && score(i, q, now) > 0.0;
      for (unsigned who = __ballot_sync(ALL, next); who; who = __ballot_sync(ALL, next)) {
        int at = __ffs(who) - 1;
        begin(__shfl_sync(ALL, i, at), r, now);
        stays = stays && at != lane;
        next = next && lane > at && fits(i, r);
      }
      keep(i, stays, left);
    }
    waiting = left;
  }
};
