#include "quantize.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "dispatch.hpp"
#include "pieces.hpp"
#include "scratch.hpp"
#include "streaming.hpp"

namespace dtk {
namespace {

// Bytes of a tile: of one row, little enough for the first-level cache; of several, for the second, where the
// next tile must have room beside it (measured on 1 MiB for two threads), in runs of neighbours in memory.
constexpr std::int64_t kRowTile = 8 * 1024, kBandTile = 64 * 1024, kBandLimit = 128 * 1024;
constexpr std::int64_t kGoodRun = 1024, kLeastRun = 256;

// Bytes of a row that a tile of so many rows takes.
std::int64_t tile_run(std::int64_t num_rows) {
  if (num_rows == 1) return kRowTile;
  return std::max({kLeastRun, std::min(kGoodRun, kBandLimit / num_rows), kBandTile / num_rows});
}

std::int64_t ceil_div(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::int64_t bytes_of(DType type) { return type == kFloat32 ? 4 : 2; }

template <typename Arguments>
std::int64_t num_elements(const Arguments& a) {
  return a.num_matrices * a.rows * a.columns;
}

template <typename Arguments>
void flatten(Arguments& a) {
  a.columns = num_elements(a);
  a.num_matrices = a.rows = 1;
}

// Cuts into tiles, and dense matrices into one long row where no block reaches past the end of a row. Returns
// whether there is only one block (which is then cut like all else).
template <typename Arguments>
bool plan(Arguments& a, const std::optional<BlockShape>& block, bool dense, std::int64_t element_bytes) {
  const BlockShape shape = block.value_or(BlockShape{0, 0});
  const auto size_of = [](std::int64_t wanted, std::int64_t whole) {
    return std::max<std::int64_t>(1, wanted == 0 ? whole : std::min(wanted, whole));
  };
  a.block_rows = size_of(shape.rows, a.rows);
  a.block_columns = size_of(shape.columns, a.columns);
  const bool only_block =
      !block || (a.num_matrices == 1 && a.block_rows >= a.rows && a.block_columns >= a.columns);
  const bool by_rows = only_block || (a.block_rows == 1 && a.columns % a.block_columns == 0);
  if (dense && by_rows) flatten(a);
  if (only_block) {
    a.block_rows = 1;
    a.block_columns = std::max<std::int64_t>(1, std::min(a.columns, kRowTile / element_bytes));
  }
  const std::int64_t run = tile_run(a.block_rows) / element_bytes;
  const std::int64_t whole_blocks = std::max<std::int64_t>(1, run / a.block_columns) * a.block_columns;
  Tiling& t = a.tiling;
  t.tile_columns = std::max<std::int64_t>(1, std::min(whole_blocks, a.columns));
  t.tiles_in_band = ceil_div(a.columns, t.tile_columns);
  t.bands_in_matrix = ceil_div(a.rows, a.block_rows);
  t.num_items = a.num_matrices * t.bands_in_matrix * t.tiles_in_band;
  return only_block;
}

bool is_dense(const QuantArguments& a) {
  return (a.rows <= 1 || a.row_stride == a.columns) &&
         (a.num_matrices <= 1 || a.matrix_stride == a.rows * a.columns);
}

// A quantisation that has been cut into items; with what all blocks share, once it is known.
class Plan {
 public:
  explicit Plan(const Quantization& work) : a_(work.arguments), tensor_scale_(work.tensor_scale) {
    only_block_ = plan(a_, work.block, is_dense(a_), bytes_of(a_.type));
    const std::int64_t element_bytes = a_.codes != nullptr ? 1 : bytes_of(a_.type);
    a_.streams = worth_streaming(a_.tiling.tile_columns * element_bytes, num_elements(a_) * element_bytes);
    if (tensor_scale_ != nullptr) *tensor_scale_ = 1.0F;
  }

  std::int64_t num_items() const { return a_.tiling.num_items; }
  std::int64_t item_bytes() const { return a_.block_rows * a_.tiling.tile_columns * bytes_of(a_.type); }

  // Whether all of x must be looked at before an element can be quantised.
  bool needs_amax() const { return only_block_ || is_nvfp4(); }

  // May be called for different items at once.
  void look_at(Range items) {
    if (only_block_) raise(largest_, quant_kernels().amax(a_, items, false));
    if (is_nvfp4()) raise(largest_finite_, quant_kernels().amax(a_, items, true));
  }

  // To be called after all items have been looked at.
  void settle() {
    if (is_nvfp4()) {
      const float scale = std::bit_cast<float>(largest_finite_.load()) / (a_.format.max * 448.0F);
      shared_.tensor_scale = scale == 0.0F ? 1.0F : scale;
      if (tensor_scale_ != nullptr) *tensor_scale_ = shared_.tensor_scale;
    }
    if (only_block_) shared_ = quant_kernels().only_block(a_, largest_.load(), shared_.tensor_scale);
  }

  void quantize(Range items, Scratch& scratch) const {
    quant_kernels().quantize(a_, shared_, items, scratch.floats(quant_kernels().quantize_scratch(a_)));
  }

 private:
  bool is_nvfp4() const { return a_.scale_rule.format == ScaleFormat::kNvfp4; }

  static void raise(std::atomic<std::uint32_t>& to, std::uint32_t value) {
    std::uint32_t before = to.load();
    while (before < value && !to.compare_exchange_weak(before, value)) {
    }
  }

  QuantArguments a_;
  float* tensor_scale_;
  bool only_block_ = false;
  SharedScale shared_{1.0F, false, 1.0F, 1.0F};
  std::atomic<std::uint32_t> largest_{0}, largest_finite_{0};
};

// Tasks of the first pass look at x, those of the second wait for them and quantise, from the end: what was
// seen last may still be in a cache. Waiting cannot go on for ever: threads take up a job's tasks in order.
class TwoPasses {
 public:
  TwoPasses(std::shared_ptr<Plan> plan, std::int64_t num_tasks)
      : plan_(std::move(plan)), num_left_(num_tasks) {}

  void look_at(Range items) {
    plan_->look_at(items);
    if (num_left_.fetch_sub(1) > 1) return;
    plan_->settle();
    settled_.store(true);
    settled_.notify_all();
  }

  void quantize(Range items, Scratch& scratch) const {
    settled_.wait(false);
    plan_->quantize(items, scratch);
  }

 private:
  std::shared_ptr<Plan> plan_;
  std::atomic<std::int64_t> num_left_;
  std::atomic<bool> settled_{false};
};

// Runs of a few pieces are a job's sequences, so that all threads get some, however they are grouped.
struct Runs {
  explicit Runs(std::int64_t num_pieces)
      : length(std::clamp<std::int64_t>(num_pieces, 1, 8)), number(ceil_div(num_pieces, length)) {}

  std::int64_t total() const { return length * number; }

  std::int64_t length, number;
};

}  // namespace

const QuantTable& quant_kernels() {
  static const QuantTable& chosen = []() -> const QuantTable& {
    const char* const wanted = kernels().instruction_set;
#if defined(DTK_HAVE_AVX2)
    if (std::strcmp(wanted, kAvx2Quant.instruction_set) == 0) return kAvx2Quant;
#endif
#if defined(DTK_HAVE_AVX512)
    if (std::strcmp(wanted, kAvx512Quant.instruction_set) == 0) return kAvx512Quant;
#endif
    return kGenericQuant;
  }();
  return chosen;
}

void quantize(const Quantization& work) {
  Plan plan(work);
  Scratch scratch;
  const Range all = {0, plan.num_items()};
  if (!plan.needs_amax()) return plan.quantize(all, scratch);
  plan.look_at(all);
  plan.settle();
  const Pieces pieces(plan.num_items(), plan.item_bytes());
  for (std::int64_t piece = pieces.number; piece-- > 0;) plan.quantize(pieces.at(piece), scratch);
}

std::shared_ptr<Job> quantize_job(const Quantization& work) {
  const auto plan = std::make_shared<Plan>(work);
  const Pieces pieces(plan->num_items(), plan->item_bytes());
  const Runs runs(pieces.number);
  if (!plan->needs_amax()) {
    return std::make_shared<Job>(TaskCounts{runs.number, runs.length},
                                 [plan, pieces](std::int64_t task, Scratch& scratch) {
                                   if (task < pieces.number) plan->quantize(pieces.at(task), scratch);
                                 });
  }
  if (pieces.number == 0) plan->settle();  // nothing to look at, but there may be a scale to write
  const auto passes = std::make_shared<TwoPasses>(plan, pieces.number);
  return std::make_shared<Job>(TaskCounts{2 * runs.number, runs.length},
                               [passes, pieces, runs](std::int64_t task, Scratch& scratch) {
                                 const std::int64_t piece = task % runs.total();
                                 if (piece >= pieces.number) return;
                                 if (task < runs.total()) {
                                   passes->look_at(pieces.at(piece));
                                 } else {
                                   passes->quantize(pieces.at(pieces.number - 1 - piece), scratch);
                                 }
                               });
}

void dequantize(DequantArguments a, const std::optional<BlockShape>& block) {
  const bool only_block = plan(a, block, true, sizeof(float));
  Scratch scratch;
  if (only_block) a.block_columns = std::max<std::int64_t>(1, a.columns);
  quant_kernels().dequantize(a, {0, a.tiling.num_items},
                             scratch.floats(quant_kernels().dequantize_scratch(a)));
}

void hadamard(const HadamardArguments& a) {
  Scratch scratch;
  quant_kernels().hadamard(a, {0, a.num_rows}, scratch.floats(quant_kernels().hadamard_scratch(a)));
}

}  // namespace dtk
