#include "engine/load/weight_loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "engine/load/dequant.h"
#include "engine/load/weight_plan.h"
#include "tests/engine/load/dequant_fixture.h"

namespace millrace {
namespace {

constexpr int64_t kColumns = 256;

// Tensors in memory under Hugging Face names.
class Tensors {
 public:
  void add_blocks(const std::string& name, const DequantCase& c, int64_t rows) {
    storage_.push_back(c.blocks);
    add(name, c.type, {rows, kColumns});
  }
  // Values i + first.
  void add_floats(const std::string& name, std::vector<int64_t> shape, float first) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    storage_.emplace_back(static_cast<size_t>(n) * 4);
    for (int64_t i = 0; i < n; ++i) {
      const float value = first + static_cast<float>(i);
      std::memcpy(storage_.back().data() + i * 4, &value, 4);
    }
    add(name, StoredType::f32, std::move(shape));
  }
  TensorCatalog catalog(bool interleaved = false) const {
    auto catalog = TensorCatalog::make(tensors_, {"x"}, TensorNaming::hugging_face, interleaved);
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return *std::move(catalog);
  }

 private:
  void add(const std::string& name, StoredType type, std::vector<int64_t> shape) {
    StoredTensor t{name, type, std::move(shape), storage_.back().data(), storage_.back().size()};
    tensors_.push_back(std::move(t));
  }
  std::vector<std::vector<uint8_t>> storage_;
  std::vector<StoredTensor> tensors_;
};

// A model that is only its list of weights.
class ListModel final : public Model {
 public:
  explicit ListModel(std::function<void(WeightBinder&)> list) : list_(std::move(list)) {}
  void bind(WeightBinder& binder) override { list_(binder); }
  void forward(const Ctx&, const Step&, std::span<const KvBinding>, Tensor) const override {}
  void logits(const Ctx&, Tensor, Tensor) const override {}

 private:
  std::function<void(WeightBinder&)> list_;
};

Status load(const TensorCatalog& catalog, const TensorParallel& tp, WeightType type,
            WeightStore& store, std::function<void(WeightBinder&)> list) {
  ListModel model(std::move(list));
  WeightPlanner planner(catalog, tp, type);
  model.bind(planner);
  MR_ASSIGN_OR_RETURN(const WeightPlan plan, planner.finish());
  MR_RETURN_IF_ERROR(load_planned_weights(plan, 2, store, nullptr));
  EXPECT_EQ(store.bytes(), plan.bytes);
  return absl::OkStatus();
}

std::vector<float> row(const LinearWeight& w, int64_t i) {
  std::vector<float> out(static_cast<size_t>(w.k));
  unpack_row(w, i, out.data());
  return out;
}

TEST(WeightLoader, EveryTypeInItsClass) {
  for (const DequantCase& c : read_dequant_cases()) {
    SCOPED_TRACE(c.name);
    Tensors tensors;
    tensors.add_blocks("w.weight", c, 4);
    const TensorCatalog catalog = tensors.catalog();
    WeightStore store, exact_store;
    LinearWeight w, exact;
    const auto list = [](LinearWeight& field) {
      return [&field](WeightBinder& b) {
        b.linear({{"w", 4}}, field, kColumns, Split::none, false);
      };
    };
    ASSERT_TRUE(load(catalog, {}, WeightType::automatic, store, list(w)).ok());
    ASSERT_TRUE(load(catalog, {}, WeightType::float32, exact_store, list(exact)).ok());
    EXPECT_EQ(w.format, fits_int4(c.type) ? WeightFormat::int4_g32 : WeightFormat::int8_g32);
    EXPECT_EQ(exact.format, WeightFormat::f32);
    // Single-scale formats keep every bit; super-blocks round their product of scales to f16, and
    // groups of 16 are quantised anew.
    const bool keeps_bits = stored_type_info(c.type).elements == 32;
    float largest = 0.0f;
    for (const float x : c.floats) largest = std::max(largest, std::fabs(x));
    const float tolerance = keeps_bits                        ? 0.0f
                            : stored_group_size(c.type) == 16 ? 1.0f / 250
                                                              : 1e-3f;
    for (int64_t r = 0; r < 4; ++r) {
      const std::vector<float> got = row(w, r), all = row(exact, r);
      for (int64_t k = 0; k < kColumns; ++k) {
        const float want = c.floats[static_cast<size_t>(r * kColumns + k)];
        ASSERT_EQ(all[static_cast<size_t>(k)], want);
        ASSERT_NEAR(got[static_cast<size_t>(k)], want, tolerance * largest) << r << " " << k;
      }
    }
  }
}

TEST(WeightLoader, QuantisesAnewOnRequest) {
  // Inside the layers, outside of them, and where no group of 32 fits.
  struct Expectation {
    WeightType type;
    WeightFormat layer, head, odd;
    bool minima;
  };
  for (const Expectation& e :
       {Expectation{WeightType::w8a8, WeightFormat::int8_channel, WeightFormat::int8_g32,
                    WeightFormat::int8_channel, false},
        Expectation{WeightType::int4, WeightFormat::int4_g32, WeightFormat::int8_g32,
                    WeightFormat::bf16, true}}) {
    Tensors tensors;
    tensors.add_floats("layers.0.w.weight", {3, 64}, -90.0f);
    tensors.add_floats("layers.0.odd.weight", {3, 40}, -50.0f);
    tensors.add_floats("head.weight", {3, 64}, -90.0f);
    const TensorCatalog catalog = tensors.catalog();
    WeightStore store;
    LinearWeight layer, odd, head;
    ASSERT_TRUE(load(catalog, {}, e.type, store, [&](WeightBinder& b) {
                  b.push("layers", 0);
                  b.linear({{"w", 3}}, layer, 64, Split::none, false);
                  b.linear({{"odd", 3}}, odd, 40, Split::none, false);
                  b.pop();
                  b.linear({{"head", 3}}, head, 64, Split::none, false);
                }).ok());
    EXPECT_EQ(layer.format, e.layer);
    EXPECT_EQ(odd.format, e.odd);
    EXPECT_EQ(head.format, e.head);
    EXPECT_EQ(layer.minima != nullptr, e.minima);
    EXPECT_EQ(head.minima, nullptr);
    for (int64_t r = 0; r < 3; ++r) {
      const std::vector<float> got = row(layer, r);
      for (int64_t k = 0; k < 64; ++k)  // half a step of 102 / 127 or of 31 / 15
        ASSERT_NEAR(got[static_cast<size_t>(k)], -90.0f + static_cast<float>(r * 64 + k), 1.1f);
    }
  }
}

TEST(WeightLoader, StackedPartsTakeTheWidestClass) {
  const std::vector<DequantCase> cases = read_dequant_cases();
  const DequantCase *q4_0 = nullptr, *q8_0 = nullptr, *q5_1 = nullptr;
  for (const DequantCase& c : cases) {
    if (c.type == StoredType::q4_0) q4_0 = &c;
    if (c.type == StoredType::q8_0) q8_0 = &c;
    if (c.type == StoredType::q5_1) q5_1 = &c;
  }
  Tensors tensors;
  tensors.add_blocks("q.weight", *q4_0, 4);
  tensors.add_blocks("k.weight", *q8_0, 4);
  tensors.add_blocks("v.weight", *q5_1, 4);
  const TensorCatalog catalog = tensors.catalog();
  WeightStore store;
  LinearWeight w;
  ASSERT_TRUE(load(catalog, {}, WeightType::automatic, store, [&](WeightBinder& b) {
                b.linear({{"q", 4}, {"k", 4}, {"v", 4}}, w, kColumns, Split::none, false);
              }).ok());
  EXPECT_EQ(w.format, WeightFormat::int8_g32);
  EXPECT_NE(w.minima, nullptr);
  const DequantCase* parts[] = {q4_0, q8_0, q5_1};
  for (int64_t r = 0; r < 12; ++r) {
    const std::vector<float> got = row(w, r);
    for (int64_t k = 0; k < kColumns; ++k) {
      ASSERT_EQ(got[static_cast<size_t>(k)],
                parts[r / 4]->floats[static_cast<size_t>(r % 4 * kColumns + k)]);
    }
  }
}

// A shard boundary inside a super-block keeps codes where it falls between groups of 32, and gives
// bf16 where it cuts one.
TEST(WeightLoader, RowSplitsCutSuperBlocks) {
  for (const DequantCase& c : read_dequant_cases()) {
    for (const int ranks : {2, 4, 16}) {
      SCOPED_TRACE(c.name + " on " + std::to_string(ranks) + " ranks");
      Tensors tensors;
      tensors.add_blocks("w.weight", c, 4);
      const TensorCatalog catalog = tensors.catalog();
      WeightStore whole_store;
      LinearWeight whole;
      ASSERT_TRUE(load(catalog, {}, WeightType::automatic, whole_store, [&](WeightBinder& b) {
                    b.linear({{"w", 4}}, whole, kColumns, Split::rows, false);
                  }).ok());
      for (int rank = 0; rank < ranks; ++rank) {
        WeightStore store;
        LinearWeight w;
        ASSERT_TRUE(
            load(catalog, {rank, ranks}, WeightType::automatic, store, [&](WeightBinder& b) {
              b.linear({{"w", 4}}, w, kColumns, Split::rows, false);
            }).ok());
        ASSERT_EQ(w.k, kColumns / ranks);
        ASSERT_EQ(w.format, ranks == 16 ? WeightFormat::bf16 : whole.format);
        for (int64_t r = 0; r < 4; ++r) {
          const std::vector<float> got = row(w, r), want = row(whole, r);
          for (int64_t k = 0; k < w.k; ++k) {
            const float x = want[static_cast<size_t>(rank * w.k + k)];
            if (ranks < 16) {
              ASSERT_EQ(got[static_cast<size_t>(k)], x);
            } else {
              const float exact = c.floats[static_cast<size_t>(r * kColumns + rank * w.k + k)];
              ASSERT_EQ(got[static_cast<size_t>(k)], to_float(to_bf16(exact)));
            }
          }
        }
      }
    }
  }
}

TEST(WeightLoader, HeadsAreSplitReplicatedAndBiasedPerRank) {
  Tensors tensors;
  tensors.add_floats("q.weight", {8, 32}, 0.0f);  // 4 heads of 2
  tensors.add_floats("q.bias", {8}, 500.0f);
  tensors.add_floats("k.weight", {4, 32}, 1000.0f);  // 2 heads of 2
  tensors.add_floats("k.bias", {4}, 700.0f);
  tensors.add_floats("o.weight", {32, 8}, 0.0f);
  tensors.add_floats("o.bias", {32}, 900.0f);
  const TensorCatalog catalog = tensors.catalog();
  for (int rank = 0; rank < 4; ++rank) {
    WeightStore store;
    LinearWeight qk, o;
    ASSERT_TRUE(load(catalog, {rank, 4}, WeightType::float32, store, [&](WeightBinder& b) {
                  b.linear({{"q", 8, 4}, {"k", 4, 2}}, qk, 32, Split::columns, true);
                  b.linear({{"o", 32}}, o, 8, Split::rows, true);
                }).ok());
    ASSERT_EQ(qk.n, 4);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t q_row = rank * 2 + i, k_row = rank / 2 * 2 + i;
      EXPECT_EQ(row(qk, i)[0], static_cast<float>(q_row * 32));
      EXPECT_EQ(qk.bias[i], 500.0f + static_cast<float>(q_row));
      EXPECT_EQ(row(qk, 2 + i)[0], 1000.0f + static_cast<float>(k_row * 32));
      EXPECT_EQ(qk.bias[2 + i], 700.0f + static_cast<float>(k_row));
    }
    ASSERT_EQ(o.k, 2);
    EXPECT_EQ(row(o, 3)[1], static_cast<float>(3 * 8 + rank * 2 + 1));
    // The sum over ranks must hold the bias once.
    if (rank == 0) {
      ASSERT_NE(o.bias, nullptr);
      EXPECT_EQ(o.bias[31], 931.0f);
    } else {
      EXPECT_EQ(o.bias, nullptr);
    }
  }
}

TEST(WeightLoader, InterleavedRotaryRowsComeBackInHalves) {
  Tensors tensors;
  tensors.add_floats("self_attn.q_proj.weight", {8, 1}, 0.0f);  // 2 heads of 4
  tensors.add_floats("self_attn.q_proj.bias", {8}, 100.0f);
  tensors.add_floats("self_attn.v_proj.weight", {4, 1}, 50.0f);
  tensors.add_floats("self_attn.v_proj.bias", {4}, 150.0f);
  const TensorCatalog catalog = tensors.catalog(/*interleaved=*/true);
  WeightStore store;
  LinearWeight w;
  ASSERT_TRUE(load(catalog, {}, WeightType::float32, store, [&](WeightBinder& b) {
                b.linear({{"self_attn.q_proj", 8, 2}, {"self_attn.v_proj", 4, 1}}, w, 1,
                         Split::columns, true);
              }).ok());
  const float expected[] = {0, 2, 1, 3, 4, 6, 5, 7, 50, 51, 52, 53};
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(row(w, i)[0], expected[i]);
    EXPECT_EQ(w.bias[i], expected[i] + 100.0f);
  }
}

std::string load_error(const Tensors& tensors, std::function<void(WeightBinder&)> list) {
  WeightStore store;
  const Status status = load(tensors.catalog(), {}, WeightType::automatic, store, std::move(list));
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(store.bytes(), 0u);  // refused before any memory was spent
  return status_message(status);
}

TEST(WeightPlan, MissingMisshapenAndSurplusTensorsAreNamed) {
  Tensors tensors;
  tensors.add_floats("a.weight", {2, 4}, 0.0f);
  tensors.add_floats("b.weight", {4}, 0.0f);
  LinearWeight w;
  const float* v;
  EXPECT_EQ(load_error(tensors,
                       [&](WeightBinder& b) {
                         b.linear({{"a", 2}}, w, 4, Split::none, false);
                         b.push("layers", 3);
                         b.vector("c.weight", v, 4);
                       }),
            "x: tensor \"layers.3.c.weight\" of shape [4] is missing.");
  EXPECT_EQ(load_error(tensors,
                       [&](WeightBinder& b) {
                         b.linear({{"a", 4}}, w, 2, Split::none, false);
                       }),
            "x: tensor \"a.weight\" has shape [2, 4] where the configuration needs [4, 2].");
  EXPECT_EQ(load_error(tensors,
                       [&](WeightBinder& b) {
                         b.linear({{"a", 2}}, w, 4, Split::none, false);
                       }),
            "x: tensor \"b.weight\" of shape [4] is not part of the model that the configuration "
            "describes.");
}

TEST(WeightPlan, TiedAndUntiedHeads) {
  LinearWeight embed, head;
  const auto tied = [&](WeightBinder& b) {
    b.linear({{"embed", 2}}, embed, 4, Split::none, false);
    b.share(head, embed);
  };
  const auto untied = [&](WeightBinder& b) {
    b.linear({{"embed", 2}}, embed, 4, Split::none, false);
    b.linear({{"lm_head", 2}}, head, 4, Split::none, false);
  };
  Tensors absent;
  absent.add_floats("embed.weight", {2, 4}, 1.0f);
  Tensors present;
  present.add_floats("embed.weight", {2, 4}, 1.0f);
  present.add_floats("lm_head.weight", {2, 4}, 9.0f);
  for (const Tensors* tensors : {&absent, &present}) {
    WeightStore store;
    ASSERT_TRUE(load(tensors->catalog(), {}, WeightType::float32, store, tied).ok());
    EXPECT_EQ(head.panels, embed.panels);
    EXPECT_EQ(row(head, 1)[0], 5.0f);
  }
  WeightStore store;
  ASSERT_TRUE(load(present.catalog(), {}, WeightType::float32, store, untied).ok());
  EXPECT_EQ(row(head, 1)[0], 13.0f);
  EXPECT_NE(load_error(absent, untied).find("\"lm_head.weight\""), std::string::npos);
}

TEST(WeightStore, AlignedZeroedAndCounted) {
  WeightStore store;
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{100'000}, size_t{5} << 20}) {
    auto* memory = static_cast<unsigned char*>(store.allocate(bytes));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    EXPECT_EQ(memory[0], 0);
    EXPECT_EQ(memory[bytes - 1], 0);
    memory[bytes - 1] = 1;
  }
  EXPECT_EQ(store.bytes(), 64u + 64 + 100'032 + (5u << 20));
  EXPECT_EQ(store.allocate(SIZE_MAX - 10), nullptr);
  WeightStore moved = std::move(store);
  EXPECT_EQ(moved.bytes(), 64u + 64 + 100'032 + (5u << 20));
}

}  // namespace
}  // namespace millrace
