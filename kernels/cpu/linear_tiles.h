// The walk over tiles that the vectorised levels of linear share: blocks of k, then rows. For the
// linear_avx*.cc files only; internal linkage for the reason given in linear.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/linear.h"

namespace millrace::cpu {
namespace {

// R rows of x times some columns over a block of k: what a tile function is given.
struct Tile {
  const char* w;           // weights of the first k step and column
  const uint16_t* scales;  // of the first group and column
  const uint16_t* minima;  // or null
  const char* x;           // [R] rows at the first k step
  int64_t x_stride;        // bytes
  const float* x_scales;   // at the first group: [groups][factor_rows], as the next two
  const int32_t* corrections;
  const float* minimum_factors;
  int64_t steps;  // k elements (f32), pairs (bf16), quads (int8_channel) or groups
  float* out;
  int64_t out_stride;
  const float* bias;  // at the first column; null unless this is the last block of k
  int64_t columns;    // valid ones from the first column on
  bool first;         // first block of k: the chains begin at zero
  bool last;          // last block of k
  // What to fetch ahead: each step over kStepBytes at `w` also touches w + ahead[0] and
  // w + ahead[1]. Any address is allowed.
  int64_t ahead[2];
};
using TileFunction = void (*)(const Tile&);

// What a format's tiles step over.
struct TileSteps {
  int64_t k_per_step;
  int64_t weight_step;  // bytes of a panel
  int64_t x_step;       // bytes
  int max_rows;         // grouped: the level's factor_rows
  bool grouped;
};

constexpr int64_t kStepBytes = kPanel * 4;  // of a panel: an element, pair, quad or oct of k
constexpr int64_t kLine = 64;               // bytes of a cache line
constexpr int64_t kLinesPerStep = kStepBytes / kLine;

// The first weights of a column that is a multiple of kUnit.
inline const char* weights_at(const LinearTask& t, int64_t column) {
  return reinterpret_cast<const char*>(t.panels) + column / kPanel * t.panel_bytes +
         column % kPanel * 4;
}

inline Tile first_tile(const LinearTask& t, const TileSteps& s, int64_t column, int64_t step) {
  const int64_t panel = column / kPanel, c = column % kPanel;
  Tile tile{};
  tile.w = weights_at(t, column) + step * s.weight_step;
  if (t.scales) {
    const int64_t group = s.grouped ? step : 0;
    const int64_t at = panel * t.panel_scales + group * kPanel + c;
    tile.scales = t.scales + at;
    tile.minima = t.minima ? t.minima + at : nullptr;
    tile.x_scales = t.value_scales + group * s.max_rows;
    tile.corrections = t.corrections + group * s.max_rows;
    tile.minimum_factors = t.minimum_factors + group * s.max_rows;
  }
  tile.x = t.values + step * s.x_step;
  tile.x_stride = t.value_stride;
  tile.out = t.out + column;
  tile.out_stride = t.out_stride;
  tile.columns = t.n - column;
  tile.first = step == 0;
  return tile;
}

// `next` is wanted next (null: nothing is known). Shares out its cache lines over the first tiles
// of rows, so that memory works while the others multiply.
inline void fetch_ahead(Tile& tile, int64_t tiles, int64_t i, const char* next) {
  const int64_t per_tile = tiles < kLinesPerStep ? 2 : 1;
  const int64_t line = i * per_tile;
  const char* first = next != nullptr && line < kLinesPerStep ? next + line * kLine : tile.w;
  tile.ahead[0] = first - tile.w;
  tile.ahead[1] = first == tile.w ? 0 : tile.ahead[0] + (per_tile - 1) * kLine;
}

// Where the factors of a row and group are.
inline int64_t factor_index(const LinearTask& t, int64_t factor_rows, int64_t row, int64_t g) {
  return (row / factor_rows * t.groups + g) * factor_rows + row % factor_rows;
}

// Calls run(height, tile) for all rows: formats with groups in tiles of max_rows and a rest, the
// others in tiles of nearly equal height. `next`: the weights after the tile's, or null.
template <class Run>
inline void pass_rows(const LinearTask& t, const TileSteps& s, Tile tile, const char* next,
                      const Run& run) {
  const int64_t tiles = (t.rows + s.max_rows - 1) / s.max_rows;
  for (int64_t i = 0, row = 0; i < tiles; ++i) {
    const int64_t left = t.rows - row;
    const int64_t height = !s.grouped          ? t.rows * (i + 1) / tiles - row
                           : left < s.max_rows ? left
                                               : s.max_rows;
    fetch_ahead(tile, tiles, i, next);
    run(height, tile);
    row += height;
    tile.x += height * tile.x_stride;
    tile.out += height * tile.out_stride;
    if (t.scales) {
      tile.x_scales += height * t.groups;
      tile.corrections += height * t.groups;
      tile.minimum_factors += height * t.groups;
    }
  }
}

// All rows for the columns from `column` on. k is cut where a panel exceeds `block_bytes`, so that
// the weights stay in the second-level cache while the rows pass; one tile of rows reads them once
// anyway, and the hardware fetches them ahead. `next`: the weights after these columns', or null.
template <class Run>
inline void pass_blocks(const LinearTask& t, const TileSteps& s, int64_t column,
                        int64_t block_bytes, const char* next, const Run& run) {
  const int64_t steps = (t.k + s.k_per_step - 1) / s.k_per_step;
  const int64_t block = t.rows <= s.max_rows ? steps : block_bytes / s.weight_step;
  for (int64_t step = 0; step < steps; step += block) {
    Tile tile = first_tile(t, s, column, step);
    tile.steps = steps - step < block ? steps - step : block;
    tile.last = step + tile.steps == steps;
    tile.bias = t.bias && tile.last ? t.bias + column : nullptr;
    pass_rows(t, s, tile, tile.last ? next : tile.w + tile.steps * s.weight_step, run);
  }
}

}  // namespace
}  // namespace millrace::cpu
