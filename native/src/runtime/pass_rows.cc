#include "pass_rows.h"

#include <algorithm>
#include <map>
#include <string>

#include "odmoe/error.h"

namespace odmoe {
namespace {

void check_sequences(const PassRows& rows, const Model& model) {
  for (const auto& sequence : rows.sequences) {
    if (sequence->model() != &model) throw Error(ErrorCode::internal, "a sequence of another model");
    if (std::count(rows.sequences.begin(), rows.sequences.end(), sequence) > 1) {
      throw Error(ErrorCode::internal, "a sequence is listed twice");
    }
  }
}

void check_first_position(const Sequence& sequence, size_t row, int32_t position) {
  const int oldest = sequence.oldest_position();
  if (position == 0 || position >= oldest) return;
  throw Error(ErrorCode::internal, "row " + std::to_string(row) + " stands at position " + std::to_string(position) +
                                       "; the sequence's recurrent layers go back to " + std::to_string(oldest) +
                                       ", or to the start");
}

}  // namespace

void check_rows(const PassRows& rows, const Model& model, int max_rows) {
  const ModelShape& shape = model.shape();
  const size_t n = rows.positions.size();
  if (n == 0 || n > static_cast<size_t>(max_rows)) {
    throw Error(ErrorCode::internal, std::to_string(n) + " rows in a pass of 1 to " + std::to_string(max_rows));
  }
  if (rows.row_sequence.size() != n || rows.token_ids.size() != n) {
    throw Error(ErrorCode::internal, "a pass needs a sequence, a position and a token for every row");
  }
  const size_t state_floats = shape.draft_head ? n * static_cast<size_t>(shape.hidden_size) : 0;
  if (rows.states.size() != state_floats) {
    throw Error(ErrorCode::internal, std::to_string(rows.states.size()) + " values of hidden states beside the tokens, expected " +
                                         std::to_string(state_floats));
  }
  check_sequences(rows, model);
  constexpr int32_t kNone = -1;
  std::vector<int32_t> last(rows.sequences.size(), kNone);
  for (size_t i = 0; i < n; i++) {
    const int32_t sequence = rows.row_sequence[i];
    if (sequence < 0 || static_cast<size_t>(sequence) >= rows.sequences.size()) {
      throw Error(ErrorCode::internal, "row " + std::to_string(i) + " belongs to no sequence of the pass");
    }
    const Sequence& of = *rows.sequences[static_cast<size_t>(sequence)];
    int32_t& before = last[static_cast<size_t>(sequence)];
    const int32_t position = rows.positions[i];
    const bool follows = before == kNone ? position >= 0 && position <= of.length() : position == before + 1;
    if (!follows || position >= shape.max_positions) {
      throw Error(ErrorCode::internal, "row " + std::to_string(i) + " stands at position " + std::to_string(position) +
                                           "; rows of a sequence follow one another, at most right behind the positions written, " +
                                           "and within the model's " + std::to_string(shape.max_positions));
    }
    if (before == kNone) check_first_position(of, i, position);
    before = position;
    if (rows.token_ids[i] < 0 || rows.token_ids[i] >= shape.vocab_size) {
      throw Error(ErrorCode::internal,
                  "token id " + std::to_string(rows.token_ids[i]) + " in a vocabulary of " + std::to_string(shape.vocab_size));
    }
  }
}

std::vector<SequenceRun> runs_of(const PassRows& rows) {
  std::vector<SequenceRun> runs;
  std::map<Sequence*, int> turns;
  for (size_t i = 0; i < rows.positions.size(); i++) {
    Sequence* const sequence = rows.sequences[static_cast<size_t>(rows.row_sequence[i])].get();
    if (!runs.empty() && runs.back().sequence == sequence) {
      runs.back().rows++;
    } else {
      runs.push_back({sequence, static_cast<int>(i), 1, rows.positions[i], turns[sequence]++});
    }
  }
  return runs;
}

}  // namespace odmoe
