// One forward pass of a few rows (tokens), possibly of several sequences.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "odmoe/model.h"
#include "odmoe/sequence.h"

namespace odmoe {

// rows x experts_per_token, by rank.
struct RouterChoice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

struct PassRows {
  std::vector<std::shared_ptr<Sequence>> sequences;
  std::vector<int32_t> row_sequence;  // row i belongs to sequences[row_sequence[i]]
  std::vector<int32_t> positions;
  std::vector<int32_t> token_ids;
};

// Rows whose logits are computed at a time; bounds the scratch.
inline constexpr int kLogitRows = 8;

struct PassState;

// begin, then for each expert layer attend and combine, or forward for all layers, then logits: each within a Call, all on the
// executor's thread. Out of order, out of range or with a failed or cancelled call before: INTERNAL, and begin starts anew.
class Pass : public LiveCount<Pass> {
 public:
  Pass(std::shared_ptr<Model> model, int max_rows);
  ~Pass();

  void begin(PassRows rows);
  // `layer` counts expert layers: those without experts that come before it run first. hidden: rows x hidden_size floats, what the experts
  // take.
  RouterChoice attend(int layer, std::span<uint8_t> hidden);
  // Of the layer that attend was asked for, what every row passes besides the experts: while those run elsewhere. combine does it where
  // it was not asked for, and throws what it failed with. No Call is needed.
  void run_always(int layer);
  bool has_always(int layer) const;
  // Between attend and combine: what the router of a later expert layer would choose now, from the residual stream without the experts in
  // between. What the pass gives does not change.
  RouterChoice choose_ahead(int layer);
  // outputs: rows x k x hidden_size floats; weights: rows x k. Layers behind the last expert layer run, too.
  void combine(int layer, std::span<const uint8_t> outputs, std::span<const float> weights);
  // on_router is called when the expert layer's router has decided. Throws CANCELLED; the layers that were done have what they keep of
  // the rows.
  void forward(const std::function<void(int layer, const RouterChoice&)>& on_router);
  // Ends a forward that has been asked for before its next layer; nothing where none is. Where calls are made.
  void cancel();
  // rows.size() x vocab_size.
  std::vector<float> logits(std::span<const int32_t> rows);

  const std::shared_ptr<Model>& model() const;

  // One call, from being asked for until done. While it lasts, another throws INTERNAL and the sequences are in use. Between calls
  // the pass has no share in its sequences, so that disposing of one frees its memory; the next call then throws INTERNAL.
  class Call {
   public:
    enum class Kind : uint8_t { step, forward };
    // begin works on the sequences it is given; the calls after it on the same.
    Call(std::shared_ptr<Pass> pass, const std::vector<std::shared_ptr<Sequence>>& sequences);
    explicit Call(std::shared_ptr<Pass> pass, Kind kind = Kind::step);
    ~Call();
    Call(Call&&) noexcept = default;
    Call& operator=(Call&&) = delete;

   private:
    std::shared_ptr<Pass> pass_;
    std::vector<Sequence::Use> uses_;
  };

 private:
  enum class Stage : uint8_t { idle, attend, combine, done };

  void expect(Stage stage, int layer);
  void check_not_cancelled(int layer) const;
  // Layers [layer_, end), none of which has experts.
  void run_dense_layers(int end);
  // All of a layer but its experts and its sum.
  RouterChoice begin_expert_layer(int layer, std::span<uint8_t> hidden);
  void end_expert_layer(int layer, std::span<const float> weights);
  void run_experts(int layer, const RouterChoice& choice);
  void run_places(std::span<const int32_t> places, std::span<const ExpertRows> experts, const float* in);

  std::unique_ptr<PassState> state_;
  std::vector<std::weak_ptr<Sequence>> sequences_;
  Stage stage_ = Stage::idle;
  int expert_layer_ = 0;  // whose turn it is
  int layer_ = 0;         // of all layers: those before it are done
  std::atomic<bool> busy_ = false;
  std::atomic<bool> forward_asked_ = false;
  std::atomic<bool> cancelled_ = false;  // the forward that was asked for
};

}  // namespace odmoe
