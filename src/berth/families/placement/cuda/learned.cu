// Whole placement runs under networks, a warp for each: the decisions of `families.placement.kernels.learned_run`.
//
// Compiled at run time after `run.cuh`, with these macros besides its own:
//   HIDDEN  hidden units of the networks
//   LOOKS   size of keys and queries; 0: no attention

#define TINY 1e-9
#define STEEP 4.0  // bound of logarithms
#if HIDDEN <= 32
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif
#define FEATURES 7
#define CLUSTER 6
enum { COUNT, VALUES, WORKS, HEAVIES, LOADS, BATCHES, BEGAN, MEANS };      // entries of `means`
enum {                                                                     // parts of a network
  TASK = 0,
  OF_CLUSTER = TASK + HIDDEN * FEATURES,
  OFFSET = OF_CLUSTER + HIDDEN * CLUSTER,
  QUERY = OFFSET + HIDDEN,
  KEY = QUERY + LOOKS * HIDDEN,
  OWN = KEY + LOOKS * HIDDEN,
  OTHERS = OWN + HIDDEN * HIDDEN,
  OFFSET2 = OTHERS + HIDDEN * HIDDEN,
  OUT = OFFSET2 + HIDDEN,
  DIRECT = OUT + HIDDEN,
  HEADS = DIRECT + FEATURES,
  WEIGHTS = HEADS + 2 * (HIDDEN + CLUSTER + 1)
};

__device__ inline double soft(double x) { return x / (1.0 + fabs(x)); }
__device__ inline double bounded_log(double x) { return larger(smaller(log(larger(x, TINY)), STEEP), -STEEP); }

struct LearnedRun : Run {
  double *pooled, *parts;  // (HIDDEN,), (2, R) terms of sums
  double *hidden, *looks;  // (HIDDEN, stride), (LOOKS, stride)
  double *key, *other;     // (stride,) ranks, and space to sort
  int *ids, *order, *spare;

  // Pending tasks by number into `ids`: those that wait, and all from `first` on.
  __device__ int pending(int first, int next, double now) {
    int size = 0;
    for (int from = 0; from < next; from += LANES) {
      int i = from + threadIdx.x;
      bool here = i < next && server[i] < 0 && (i >= first || task(DEADLINE, i) > now);
      unsigned who = __ballot_sync(ALL, here);
      if (here) ids[size + before(who)] = i;
      size += __popc(who);
    }
    __syncwarp();
    return size;
  }

  __device__ void describe_cluster(int size, int fresh, double now, const double* means, const double* bounds,
                                   double* cluster) {
    int lane = threadIdx.x;
    for (int r = lane; r < R; r += LANES) {
      double left = 0.0;
      for (int k = 0; k < RESOURCES; k++) left += facts[WEIGHT + k] * free[k * R + r];
      parts[r] = left * machine(SPEED, r);
      parts[R + r] = now <= on_until[r] ? machine(FULL, r) : 0.0;
    }
    for (int a = lane; a < size; a += LANES) key[a] = task(HEAVY, ids[a]) * task(WORK, ids[a]);
    __syncwarp();
    // a lane adds up each sum, in order
    const double* part = lane == 0 ? parts : lane == 1 ? parts + R : key;
    int many = lane < 2 ? R : lane == 2 ? size : 0;
    double sum = 0.0;
    for (int j = 0; j < many; j++) sum += part[j];
    double left = __shfl_sync(ALL, sum, 0), on = __shfl_sync(ALL, sum, 1), waits = __shfl_sync(ALL, sum, 2);
    double count = larger(means[COUNT], 1.0);
    double work = means[WORKS] / count, gain = means[VALUES] / count, heavy = means[HEAVIES] / count;
    double total = larger(facts[TOTAL], TINY);
    double holds = larger(total / larger(facts[SPEED_SUM], TINY) / larger(heavy, TINY), 1.0);
    double each = larger(heavy * work, TINY), batches = larger(means[BATCHES], 1.0);
    double period = batches > 1.0 ? (now - means[BEGAN]) / (batches - 1.0) : work / larger(facts[SWIFTEST], TINY);
    cluster[0] = left / total;
    cluster[1] = on / total;
    cluster[2] = bounded_log(1.0 + waits / each) - bounded_log(1.0 + total / each);
    cluster[3] = (double)fresh / larger((double)size, 1.0);
    cluster[4] = bounded_log(facts[LAUNCH_SUM] / R / larger(holds * gain, TINY) * 10.0);
    cluster[5] = bounded_log(means[LOADS] / (larger(period, TINY) * batches * total));
    for (int g = 0; g < CLUSTER; g++) cluster[g] = larger(smaller(cluster[g], bounds[CLUSTER + g]), bounds[g]);
  }

  __device__ void describe_task(int i, double now, const double* means, double* features) const {
    double count = larger(means[COUNT], 1.0), time = task(WORK, i) / larger(facts[SWIFTEST], TINY);
    double best = worth(i, now + time) - facts[MEAN_RATE] * task(HEAVY, i) * time;
    double safe = larger(task(VALUE, i), TINY), span = larger(time, TINY);
    features[0] = bounded_log(task(VALUE, i) / larger(means[VALUES] / count, TINY));
    features[1] = bounded_log(task(WORK, i) / larger(means[WORKS] / count, TINY));
    features[2] = bounded_log(task(HEAVY, i) / larger(means[HEAVIES] / count, TINY));
    features[3] = smaller(task(DECAY, i) * time / safe, STEEP);
    features[4] = bounded_log((task(DEADLINE, i) - now) / span);
    features[5] = larger(best, 0.0) / safe;
    features[6] = smaller((now - task(ARRIVAL, i)) / span, STEEP);
  }

  // The mean of all tasks that task a looks at, into `others`.
  __device__ void attend(const double* net, int a, int size, const double* mine, double* others) const {
#if LOOKS
    double asks[LOOKS], total = 0.0;
    for (int l = 0; l < LOOKS; l++) {
      asks[l] = 0.0;
      UNROLL for (int h = 0; h < HIDDEN; h++) asks[l] += net[QUERY + l * HIDDEN + h] * mine[h];
    }
    UNROLL for (int h = 0; h < HIDDEN; h++) others[h] = 0.0;
    for (int j = 0; j < size; j++) {
      double x = 0.0;
      for (int l = 0; l < LOOKS; l++) x += asks[l] * looks[l * stride + j];
      x = exp(larger(smaller(x / sqrt((double)LOOKS), 30.0), -30.0));
      total += x;
      UNROLL for (int h = 0; h < HIDDEN; h++) others[h] += x * hidden[h * stride + j];
    }
    UNROLL for (int h = 0; h < HIDDEN; h++) others[h] /= total;
#else
    UNROLL for (int h = 0; h < HIDDEN; h++) others[h] = pooled[h];
#endif
  }

  // Evaluate the network for pending tasks; `line` gets them by their new turns.
  __device__ void renew(const double* net, const double* bounds, const double* means, int first, int next, double now) {
    int lane = threadIdx.x, size = pending(first, next, now);
    double cluster[CLUSTER];
    describe_cluster(size, next - first, now, means, bounds, cluster);
    __syncwarp();
    for (int a = lane; a < size; a += LANES) {
      double features[FEATURES], direct = 0.0, mine[HIDDEN];
      describe_task(ids[a], now, means, features);
      for (int f = 0; f < FEATURES; f++) direct += net[DIRECT + f] * features[f];
      key[a] = direct;
      UNROLL for (int h = 0; h < HIDDEN; h++) {
        double x = net[OFFSET + h];
        for (int f = 0; f < FEATURES; f++) x += net[TASK + h * FEATURES + f] * features[f];
        for (int g = 0; g < CLUSTER; g++) x += net[OF_CLUSTER + h * CLUSTER + g] * cluster[g];
        hidden[h * stride + a] = mine[h] = soft(x);
      }
      for (int l = 0; l < LOOKS; l++) {
        double x = 0.0;
        UNROLL for (int h = 0; h < HIDDEN; h++) x += net[KEY + l * HIDDEN + h] * mine[h];
        looks[l * stride + a] = x;
      }
    }
    __syncwarp();
    for (int h = lane; h < HIDDEN; h += LANES) {
      double sum = 0.0;
      for (int a = 0; a < size; a++) sum += hidden[h * stride + a];
      pooled[h] = sum / (double)(size > 1 ? size : 1);
    }
    __syncwarp();
    const double* head = net + HEADS + (lane & 1) * (HIDDEN + CLUSTER + 1);
    double x = head[HIDDEN + CLUSTER];
    for (int h = 0; h < HIDDEN; h++) x += head[h] * pooled[h];
    for (int g = 0; g < CLUSTER; g++) x += head[HIDDEN + g] * cluster[g];
    x = exp(larger(smaller(x, STEEP), -2.0 * STEEP));
    double swiftest = larger(facts[SWIFTEST], TINY);
    double unit = means[HEAVIES] / larger(means[COUNT], 1.0) * means[WORKS] / swiftest;
    beta = __shfl_sync(ALL, x, 0);
    toll = __shfl_sync(ALL, x, 1) * (means[VALUES] / larger(unit, TINY));
    for (int a = lane; a < size; a += LANES) {
      double mine[HIDDEN], others[HIDDEN], rank = key[a];
      UNROLL for (int h = 0; h < HIDDEN; h++) mine[h] = hidden[h * stride + a];
      attend(net, a, size, mine, others);
      for (int h = 0; h < HIDDEN; h++) {
        double y = net[OFFSET2 + h];
        UNROLL for (int j = 0; j < HIDDEN; j++)
          y += net[OWN + h * HIDDEN + j] * mine[j] + net[OTHERS + h * HIDDEN + j] * others[j];
        rank += net[OUT + h] * soft(y);
      }
      key[a] = -rank;  // largest first
      order[a] = a;
    }
    __syncwarp();
    const int* sorted = sort(size);
    for (int a = lane; a < size; a += LANES) line[a] = ids[sorted[a]];
    waiting = size;
    __syncwarp();
  }

  // Merge sort of `order` by `key`, stable: every element finds its place by a search in the run beside its own.
  __device__ const int* sort(int size) {
    double *keys = key, *to_keys = other;
    int *items = order, *to_items = spare;
    for (int width = 1; width < size; width *= 2) {
      for (int at = threadIdx.x; at < size; at += LANES) {
        int first = at / (2 * width) * (2 * width), middle = first + width < size ? first + width : size;
        int last = middle + width < size ? middle + width : size;
        bool left = at < middle;
        double mine = keys[at];
        int low = left ? middle : first, high = left ? last : middle, start = low;
        while (low < high) {
          int half = (low + high) / 2;
          if (left ? keys[half] < mine : keys[half] <= mine) low = half + 1; else high = half;
        }
        int to = (left ? at : at - width) + low - start;
        to_keys[to] = mine;
        to_items[to] = items[at];
      }
      __syncwarp();
      double* k = keys;
      keys = to_keys, to_keys = k;
      int* i = items;
      items = to_items, to_items = i;
    }
    return items;
  }
};

extern "C" __global__ void __launch_bounds__(LANES, 16) play(
    const double* tasks,     // (6 + K, T)
    const int* first_task,   // (episodes+1,)
    const int* batch,        // last task of each batch, counted from the first of its episode, and 1
    const int* first_batch,  // (episodes+1,)
    const double* means,     // (batches, 7) of all tasks up to each batch
    const double* servers,   // (2 + 2 K, R)
    const int* kind_of,      // (R,)
    const double* kinds,     // (3, Q)
    const double* facts,     // (5 + K,)
    const double* networks,  // (networks, WEIGHTS)
    const double* bounds,    // (networks, 2, CLUSTER)
    double* space,           // (blocks, room)
    double* sums,            // (networks, episodes, 3) value, execution, launch
    int T, int R, int Q, int stride, int episodes, int runs,
    int room,       // doubles of a block in `space`
    int in_shared,  // 1 if the state of servers is in shared memory
    double idle) {
  for (int number = blockIdx.x; number < runs; number += gridDim.x) {
    int episode = number % episodes, which = number / episodes;
    LearnedRun run;
    run.tasks = tasks + first_task[episode], run.servers = servers, run.kinds = kinds, run.facts = facts;
    run.kind_of = kind_of;
    double* base = space + (Long)blockIdx.x * room;
    double* fast = in_shared ? (double*)memory : base + (HIDDEN + LOOKS + 6) * stride;
    run.ends = base, run.key = base + stride, run.other = base + 2 * stride, run.hidden = base + 3 * stride;
    run.looks = run.hidden + HIDDEN * stride;
    run.server = (int*)(run.looks + LOOKS * stride);
    run.ids = run.server + stride, run.order = run.ids + stride, run.spare = run.order + stride;
    run.line = run.spare + stride;
    run.free = fast, run.on_until = run.free + RESOURCES * R, run.parts = run.on_until + R;
    run.scores = run.parts + 2 * R, run.pooled = run.scores + Q, run.soonest = run.pooled + HIDDEN;
    run.running = (int*)(run.soonest + stride / LANES);
    run.T = T, run.N = first_task[episode + 1] - first_task[episode], run.R = R, run.Q = Q, run.stride = stride;
    run.idle = idle;
    run.reset();
    int next = 0, turn = first_batch[episode];
    while (next < run.N || run.live > 0) {
      int first = next, freed = -1;
      double now = next < run.N ? run.task(ARRIVAL, next) : NEVER;
      now = smaller(now, run.next_end());
      int ended = run.live > 0 ? run.finish_all(now, freed) : 0;
      run.launches = 0;
      if (next < run.N && run.task(ARRIVAL, next) == now) {
        next = batch[turn];
        const double* net = networks + (Long)which * WEIGHTS;
        run.renew(net, bounds + which * 2 * CLUSTER, means + turn * MEANS, first, next, now);
        turn++;
      }
      if (next == first && ended == 1)
        run.refill(freed, now);
      else
        run.place_all(now);
      // a launched server may now pay for a task that was tried before
      if (run.launches == 1)
        run.refill(run.launched, now);
      else if (run.launches > 1)
        run.place_all(now);
    }
    if (threadIdx.x == 0) {
      sums[number * 3] = run.value;
      sums[number * 3 + 1] = run.execution;
      sums[number * 3 + 2] = run.launch;
    }
    __syncwarp();
  }
}
