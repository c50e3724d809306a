// A daemon that a parent started for its own purposes dies with it.
#pragma once

namespace odmoe {

// Notes who the parent is; called when the addon is loaded.
void remember_parent();
// Linux: the process gets SIGKILL when its parent dies, and ends at once if it has died already. Elsewhere nothing.
void exit_with_parent();

}  // namespace odmoe
