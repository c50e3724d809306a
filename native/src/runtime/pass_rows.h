// Checks and groups the rows with which a pass begins.
#pragma once
#include <vector>

#include "pass_state.h"

namespace odmoe {

// Throws INTERNAL for rows that do not fit the model, the sequences or one another.
void check_rows(const PassRows& rows, const Model& model, int max_rows);
// Consecutive rows of one sequence, with their turns.
std::vector<SequenceRun> runs_of(const PassRows& rows);

}  // namespace odmoe
