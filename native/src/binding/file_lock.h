// A lock on a file that ends with the process that holds it.
#pragma once

namespace odmoe {

// Locks the open file or directory for this open of it (flock), until it is closed or the process ends. Shared locks go together with each
// other. Never waits. Returns false if another open of the file holds the lock. Throws if the file system has no locks, or if the number is
// no open file.
bool lock_file(int file, bool is_shared);

}  // namespace odmoe
