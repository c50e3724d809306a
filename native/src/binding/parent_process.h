// Lets a daemon that another process started end together with that process.
#pragma once

namespace odmoe {

// Stores the parent's process id; called when the addon is loaded.
void remember_parent();
// Linux: the process gets SIGKILL when its parent dies, and ends at once if the parent has already died. Other systems: does
// nothing.
void exit_with_parent();

}  // namespace odmoe
