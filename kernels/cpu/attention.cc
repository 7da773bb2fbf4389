// Paged attention: which rows and chunks are computed where. The arithmetic is in
// attention_<level>.cc, its definition in attention.h; nothing here can change a result.
//
// Work is cut into items = (sequence, KV head, some consecutive rows). A row is a (token, query
// head of the group) pair, heads fastest, so the rows of an item share K and V. Normally a thread
// takes an item and walks its chunks in order. When there are too few items to occupy the threads
// (a long context at a small batch), single (item, chunk) pairs are spread over the threads and
// their states merged afterwards, by one thread and in the same order.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>

#include "kernels/cpu/cpu.h"

namespace millrace::cpu {
namespace {

constexpr int kMaxItemRows = 96;     // K and V of a chunk are read once per so many rows
constexpr int kItemsPerThread = 4;   // enough to even out unequal items
constexpr int kPairsPerThread = 16;  // states held between two merges when chunks are spread

struct Item {
  const AttentionSequence* sequence = nullptr;
  int kv_head = 0;
  int row = 0;  // first row
  int rows = 0;
  // What any of the rows sees, as chunks [chunk_begin, chunk_end) and positions [begin, end).
  int chunk_begin = 0, chunk_end = 0;
  int begin = 0, end = 0;
};

// A call with everything that follows from its parameters alone.
struct Job {
  const AttentionParams& p;
  AttentionKernels kernels;
  int group;  // query heads per KV head
  int head_dim;
  int item_rows = 0;  // rows per item
  float scale;        // with log2(e) folded in

  int sequence_rows(const AttentionSequence& s) const { return s.q_len * group; }
  int tiles(const AttentionSequence& s, int rows) const {
    return (sequence_rows(s) + rows - 1) / rows;
  }
  int64_t items(int rows) const {
    int64_t n = 0;
    for (const AttentionSequence& s : p.sequences) n += int64_t{tiles(s, rows)} * p.kv.kv_heads;
    return n;
  }
  // [*begin, *end): the positions that row `row` of the sequence sees.
  void visible(const AttentionSequence& s, int row, int* begin, int* end) const {
    const int position = s.kv_len - s.q_len + row / group;
    *begin = p.kv.window > 0 ? std::max(0, position + 1 - p.kv.window) : 0;
    *end = position + 1;
  }
  const float* q_row(const Item& item, int row) const {
    return p.q + q_token(item, row) * p.q_stride + head(item, row) * head_dim;
  }
  float* out_row(const Item& item, int row) const {
    return p.out + q_token(item, row) * p.out_stride + head(item, row) * head_dim;
  }

 private:
  int64_t q_token(const Item& item, int row) const {
    return item.sequence->q_begin + (item.row + row) / group;
  }
  int64_t head(const Item& item, int row) const {
    return int64_t{item.kv_head} * group + (item.row + row) % group;
  }
};

// Walks the items in order; advance_to() only goes forward.
class ItemCursor {
 public:
  explicit ItemCursor(const Job& job) : job_(job) {}

  Item advance_to(int64_t index) {
    const auto& sequences = job_.p.sequences;
    int64_t in_sequence;
    for (;; ++sequence_) {
      in_sequence = int64_t{job_.tiles(sequences[sequence_], job_.item_rows)} * job_.p.kv.kv_heads;
      if (index < first_ + in_sequence) break;
      first_ += in_sequence;
    }
    const AttentionSequence& s = sequences[sequence_];
    const int tiles = job_.tiles(s, job_.item_rows);
    const int local = static_cast<int>(index - first_);
    Item item;
    item.sequence = &s;
    item.kv_head = local / tiles;
    item.row = local % tiles * job_.item_rows;
    item.rows = std::min(job_.item_rows, job_.sequence_rows(s) - item.row);
    int unused;
    job_.visible(s, item.row, &item.begin, &unused);
    job_.visible(s, item.row + item.rows - 1, &unused, &item.end);
    item.chunk_begin = item.begin / kAttentionChunk;
    item.chunk_end = (item.end + kAttentionChunk - 1) / kAttentionChunk;
    return item;
  }

 private:
  const Job& job_;
  size_t sequence_ = 0;
  int64_t first_ = 0;  // index of the first item of sequence_
};

// One thread's scratch, laid out in the arena.
struct Workspace {
  char* q;         // [rows, D], 4 bytes an element
  int32_t* begin;  // [rows] visible positions, absolute
  int32_t* end;
  AttentionState state;    // [rows] running
  AttentionState partial;  // [kAttentionRows]
  float* scores;           // [kAttentionRows, kAttentionChunk]
};

AttentionState take_state(Scratch& tmp, int64_t rows, int64_t head_dim) {
  AttentionState s;
  s.max = static_cast<float*>(tmp.bytes(static_cast<size_t>(rows) * sizeof(float)));
  s.sum = static_cast<float*>(tmp.bytes(static_cast<size_t>(rows) * sizeof(float)));
  s.acc = static_cast<float*>(tmp.bytes(static_cast<size_t>(rows * head_dim) * sizeof(float)));
  return s;
}

Workspace take_workspace(Scratch& tmp, int64_t rows, int64_t head_dim) {
  Workspace w;
  w.q = static_cast<char*>(tmp.bytes(static_cast<size_t>(rows * head_dim) * sizeof(float)));
  w.begin = static_cast<int32_t*>(tmp.bytes(static_cast<size_t>(rows) * sizeof(int32_t)));
  w.end = static_cast<int32_t*>(tmp.bytes(static_cast<size_t>(rows) * sizeof(int32_t)));
  w.state = take_state(tmp, rows, head_dim);
  w.partial = take_state(tmp, kAttentionRows, head_dim);
  w.scores = static_cast<float*>(tmp.bytes(kAttentionRows * kAttentionChunk * sizeof(float)));
  return w;
}

AttentionState from_row(const AttentionState& s, int row, int head_dim) {
  return {s.max + row, s.sum + row, s.acc + int64_t{row} * head_dim};
}

void load_rows(const Job& job, const Item& item, const Workspace& w) {
  for (int r = 0; r < item.rows; ++r) {
    job.kernels.pack_q(w.q + int64_t{r} * job.head_dim * 4, job.q_row(item, r), job.head_dim);
    job.visible(*item.sequence, item.row + r, &w.begin[r], &w.end[r]);
  }
}

void finish_rows(const Job& job, const Item& item, const AttentionState& state) {
  for (int r = 0; r < item.rows; ++r)
    job.kernels.finish(job.out_row(item, r), state.acc + int64_t{r} * job.head_dim, state.sum[r],
                       job.head_dim);
}

// K and V addresses of one chunk's tiles.
struct ChunkTiles {
  const char* k[kTilesPerChunk];
  const char* v[kTilesPerChunk];

  void set(const Job& job, const Item& item, int chunk) {
    const KvLayer& kv = job.p.kv;
    const int64_t tile_bytes =
        int64_t{kAttentionTile} * kv.head_dim * static_cast<int64_t>(dtype_bytes(kv.dtype));
    const int64_t head_bytes = tile_bytes * (kv.block_size / kAttentionTile);
    for (int t = 0; t < kTilesPerChunk; ++t) {
      k[t] = v[t] = nullptr;
      const int position = chunk * kAttentionChunk + t * kAttentionTile;
      if (position + kAttentionTile <= item.begin || position >= item.end) continue;
      const int32_t block = item.sequence->blocks[position / kv.block_size];
      MR_CHECK_OP(block, >=, 0);
      k[t] = kv.data + block * kv.block_stride + item.kv_head * head_bytes +
             position % kv.block_size / kAttentionTile * tile_bytes;
      v[t] = k[t] + kv.kv_heads * head_bytes;
    }
  }
  // Where nothing is to be fetched ahead, the tile in use is as good as any.
  void fill_from(const ChunkTiles& current) {
    for (int t = 0; t < kTilesPerChunk; ++t) {
      if (k[t]) continue;
      k[t] = current.k[t];
      v[t] = current.v[t];
    }
  }
};

// States of up to kAttentionRows rows of the item over one chunk. The workspace holds the item.
void run_chunk(const Job& job, const Workspace& w, const ChunkTiles& tiles, const ChunkTiles& next,
               int chunk, int row, int rows, const AttentionState& out) {
  int32_t begin[kAttentionRows], end[kAttentionRows];
  for (int r = 0; r < rows; ++r) {
    begin[r] = w.begin[row + r] - chunk * kAttentionChunk;
    end[r] = w.end[row + r] - chunk * kAttentionChunk;
  }
  AttentionChunk in;
  in.q = w.q + int64_t{row} * job.head_dim * 4;
  in.q_row_bytes = int64_t{job.head_dim} * 4;
  in.begin = begin;
  in.end = end;
  in.rows = rows;
  in.head_dim = job.head_dim;
  in.scale = job.scale;
  in.k = tiles.k;
  in.v = tiles.v;
  in.next_k = next.k;
  in.next_v = next.v;
  in.scores = w.scores;
  job.kernels.chunk(out, in);
}

// `next` is what the thread will do afterwards, if anything.
void run_item(const Job& job, const Item& item, const Item* next, const Workspace& w) {
  load_rows(job, item, w);
  std::fill_n(w.state.sum, item.rows, 0.0f);
  // Equal shares of rows, so that 8 rows are 4 + 4 and not 6 + 2.
  const int calls = (item.rows + kAttentionRows - 1) / kAttentionRows;
  for (int chunk = item.chunk_begin; chunk < item.chunk_end; ++chunk) {
    ChunkTiles tiles, ahead;
    tiles.set(job, item, chunk);
    if (chunk + 1 < item.chunk_end)
      ahead.set(job, item, chunk + 1);
    else if (next != nullptr)
      ahead.set(job, *next, next->chunk_begin);
    else
      ahead = tiles;
    ahead.fill_from(tiles);
    for (int i = 0; i < calls; ++i) {
      const int row = item.rows * i / calls;
      const int rows = item.rows * (i + 1) / calls - row;
      // Rows are in order of position: the last one sees the furthest, the first one the earliest.
      if (w.end[row + rows - 1] <= chunk * kAttentionChunk ||
          w.begin[row] >= (chunk + 1) * kAttentionChunk)
        continue;
      run_chunk(job, w, tiles, ahead, chunk, row, rows, w.partial);
      job.kernels.merge(from_row(w.state, row, job.head_dim), w.partial, rows, job.head_dim);
    }
  }
  finish_rows(job, item, w.state);
}

void run_items(const Ctx& c, const Job& job, const Workspace* workspaces) {
  const int64_t items = job.items(job.item_rows);
  std::atomic<int64_t> next_index{0};
  const auto work = [&](int thread_idx) {
    ItemCursor cursor(job);
    Item item, next;
    const auto take = [&](Item* to) {
      const int64_t i = next_index.fetch_add(1, std::memory_order_relaxed);
      if (i < items) *to = cursor.advance_to(i);
      return i < items;
    };
    // One item is taken ahead, so that its first chunk can be fetched during the current one.
    bool more = take(&next);
    while (more) {
      item = next;
      more = take(&next);
      run_item(job, item, more ? &next : nullptr, workspaces[thread_idx]);
    }
  };
  if (c.pool->size() == 1 || items == 1)
    work(0);
  else
    c.pool->run([&](int thread_idx) { work(thread_idx); });
}

struct Pair {
  Item item;
  int chunk;
};

// Chunks of the items spread over the threads, in rounds of at most max_pairs pairs.
void run_pairs(const Ctx& c, const Job& job, const Workspace* workspaces, Pair* pairs,
               const AttentionState* states, int max_pairs) {
  const AttentionState& running = workspaces[0].state;  // of the last item not yet finished
  std::fill_n(running.sum, kAttentionRows, 0.0f);
  const int64_t items = job.items(job.item_rows);
  ItemCursor cursor(job);
  int64_t index = 0;
  Item item = cursor.advance_to(0);
  int chunk = item.chunk_begin;
  while (index < items) {
    int n = 0;
    while (n < max_pairs && index < items) {
      pairs[n++] = {item, chunk++};
      if (chunk < item.chunk_end) continue;
      if (++index == items) break;
      item = cursor.advance_to(index);
      chunk = item.chunk_begin;
    }
    std::atomic<int> next{0};
    c.pool->run([&](int thread_idx) {
      const Workspace& w = workspaces[thread_idx];
      for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
        load_rows(job, pairs[i].item, w);
        ChunkTiles tiles, ahead;
        tiles.set(job, pairs[i].item, pairs[i].chunk);
        const Pair& following = pairs[std::min(i + c.pool->size(), n - 1)];
        ahead.set(job, following.item, following.chunk);
        ahead.fill_from(tiles);
        run_chunk(job, w, tiles, ahead, pairs[i].chunk, 0, pairs[i].item.rows, states[i]);
      }
    });
    for (int i = 0; i < n; ++i) {
      job.kernels.merge(running, states[i], pairs[i].item.rows, job.head_dim);
      if (pairs[i].chunk + 1 < pairs[i].item.chunk_end) continue;
      finish_rows(job, pairs[i].item, running);
      std::fill_n(running.sum, kAttentionRows, 0.0f);
    }
  }
}

AttentionKernels choose_kernels(CpuLevel level, DType kv) {
  switch (level) {
    case CpuLevel::reference: return attention_kernels_reference(kv);
    case CpuLevel::avx2: return attention_kernels_avx2(kv);
    case CpuLevel::avx512: return attention_kernels_avx512(kv);
  }
  fatal("attention: unknown instruction-set level");
}

void check_layout(const KvLayer& kv) {
  if (kv.head_dim % 16 != 0 || kv.head_dim < 16 || kv.head_dim > kMaxHeadDim)
    fatal("attention: the head size must be a multiple of 16 from 16 to 256");
  if (kv.dtype != DType::bf16 && kv.dtype != DType::f32)
    fatal("attention: the KV cache must be bfloat16 or float32");
  MR_CHECK_OP(kv.block_size % kAttentionTile, ==, 0);
}

// As many rows per item as leave every thread some items.
int choose_item_rows(const Job& job, int threads) {
  int rows = kMaxItemRows;
  while (rows > kAttentionRows && job.items(rows) < int64_t{kItemsPerThread} * threads) rows /= 2;
  return rows;
}

}  // namespace

void attention(const Ctx& c, const AttentionParams& p) {
  check_layout(p.kv);
  const int threads = c.pool->size();
  Scratch tmp(*c.arena);
  auto* workspaces = static_cast<Workspace*>(tmp.bytes(sizeof(Workspace) * threads));
  const int max_pairs = threads > 1 ? threads * kPairsPerThread : 0;
  auto* pairs = static_cast<Pair*>(tmp.bytes(sizeof(Pair) * max_pairs));
  auto* states = static_cast<AttentionState*>(tmp.bytes(sizeof(AttentionState) * max_pairs));
  for (int t = 0; t < threads; ++t) {
    const Workspace w = take_workspace(tmp, kMaxItemRows, p.kv.head_dim);
    if (!c.dry_run()) workspaces[t] = w;
  }
  for (int i = 0; i < max_pairs; ++i) {
    const AttentionState s = take_state(tmp, kAttentionRows, p.kv.head_dim);
    if (!c.dry_run()) states[i] = s;
  }
  if (c.dry_run()) return;

  Job job{p, choose_kernels(c.cpu_level, p.kv.dtype), static_cast<int>(p.heads / p.kv.kv_heads),
          p.kv.head_dim};
  job.scale = p.scale * 1.44269504f;
  job.item_rows = choose_item_rows(job, threads);
  const int64_t items = job.items(job.item_rows);
  if (items == 0) return;
  const bool few = threads > 1 && items < int64_t{kItemsPerThread} * threads;
  if (few)
    run_pairs(c, job, workspaces, pairs, states, max_pairs);
  else
    run_items(c, job, workspaces);
}

}  // namespace millrace::cpu
