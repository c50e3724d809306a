// Tells the service manager that has started this process what the process does (sd_notify).
#pragma once

#include <string>

namespace odmoe {

// Sends the message to the datagram socket at the address: a path, or, where it begins with "@", a name in Linux's abstract namespace.
// Returns an empty text, or what the system says where the message could not be sent. Never waits.
std::string send_service_notice(const std::string& address, const std::string& message);

}  // namespace odmoe
