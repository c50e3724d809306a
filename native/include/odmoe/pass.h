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
  // rows x experts, where a pass answers all scores; else empty.
  std::vector<float> logits;
  std::vector<float> scores;
};

// A pass's routers answer their choice, or also the logits and scores of all experts.
enum class RouterAnswer : uint8_t { choice, all_scores };

struct PassRows {
  std::vector<std::shared_ptr<Sequence>> sequences;
  std::vector<int32_t> row_sequence;  // row i belongs to sequences[row_sequence[i]]
  std::vector<int32_t> positions;
  std::vector<int32_t> token_ids;
  // rows x hidden_size, of a model that is a draft head; else empty.
  std::vector<float> states;
};

// Most rows whose logits are computed at a time; it bounds the scratch memory.
inline constexpr int kLogitRows = 8;

struct PassState;

// Order of calls: begin, then attend and combine for each expert layer, or forward for all layers, then logits. Each runs within a
// Call, all on the executor's thread. A call throws INTERNAL if it is out of order or out of range, or follows a failed or
// cancelled call; begin starts a new pass.
class Pass : public LiveCount<Pass> {
 public:
  Pass(std::shared_ptr<Model> model, int max_rows, RouterAnswer answer = RouterAnswer::choice);
  ~Pass();

  void begin(PassRows rows);
  // `layer` counts expert layers; the layers without experts before it run first. hidden: rows x hidden_size floats, the input of
  // the experts.
  RouterChoice attend(int layer, std::span<uint8_t> hidden);
  // Runs the always part of the layer of the last attend, while its experts run elsewhere. If it was not called, combine runs that
  // part; combine also throws its error. It needs no Call.
  void run_always(int layer);
  bool has_always(int layer) const;
  // To be called between attend and combine. Returns the choice that the router of a later expert layer would make now, from the
  // residual stream without the experts in between. The results of the pass do not change.
  RouterChoice choose_ahead(int layer);
  // outputs: rows x k x hidden_size floats; weights: rows x k. After the last expert layer this also runs the layers behind it.
  void combine(int layer, std::span<const uint8_t> outputs, std::span<const float> weights);
  // To be called between begin or a combine and the next attend, or after the last combine. Copies the residual stream: rows x
  // hidden_size; of a model with several streams the sum of them that the next mixer takes, or the final norm. The pass does not change.
  void residual(std::span<float> states) const;
  // on_router is called when the router of an expert layer has chosen. Throws CANCELLED; finished layers then have their cache
  // rows.
  void forward(const std::function<void(int layer, const RouterChoice&)>& on_router);
  // Ends a requested forward before its next layer; does nothing where there is none. To be called on the thread that makes the
  // calls.
  void cancel();
  // The last hidden states of rows, before or behind the final norm: rows.size() x hidden_size.
  std::vector<float> states(std::span<const int32_t> rows, bool normed);
  // rows.size() x vocab_size.
  std::vector<float> logits(std::span<const int32_t> rows);

  const std::shared_ptr<Model>& model() const;

  // One call, from its request until it is done. While it lasts, another call throws INTERNAL, and the sequences are in use.
  // Between calls the pass does not own its sequences, so that disposing of a sequence frees its memory; the next call then throws
  // INTERNAL.
  class Call {
   public:
    enum class Kind : uint8_t { step, forward };
    // begin works on the given sequences; the calls after it work on the same ones.
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
  // Throws INTERNAL unless all layers are done and the rows are of the pass.
  void check_last_rows(std::span<const int32_t> rows) const;
  // The residual becomes what the layer's mixer takes, of models with residual streams.
  void begin_layer(int layer);
  // Runs layers [layer_, end), none of which has experts.
  void run_dense_layers(int end);
  // Runs a layer except its experts and the sum of their outputs.
  RouterChoice begin_expert_layer(int layer, std::span<uint8_t> hidden);
  void end_expert_layer(int layer, std::span<const float> weights);
  void run_experts(int layer, const RouterChoice& choice);
  void run_places(std::span<const int32_t> places, std::span<const ExpertRows> experts, const float* in);

  std::unique_ptr<PassState> state_;
  std::vector<std::weak_ptr<Sequence>> sequences_;
  Stage stage_ = Stage::idle;
  int expert_layer_ = 0;  // the next expert layer
  int layer_ = 0;         // among all layers: the layers before it are done
  std::atomic<bool> busy_ = false;
  std::atomic<bool> forward_asked_ = false;
  std::atomic<bool> cancelled_ = false;  // cancel() ended the requested forward
};

}  // namespace odmoe
