#include "odmoe/event_time.h"

namespace odmoe {
namespace {

thread_local std::optional<EventTime> in_hand;

}  // namespace

std::optional<EventTime> event_in_hand() { return in_hand; }

void set_event_in_hand(const std::optional<EventTime>& event) { in_hand = event; }

EventTime event_time() {
  const EventTime now = std::chrono::steady_clock::now();
  if (!in_hand.has_value() || *in_hand > now || now - *in_hand > kEventLagLimit) return now;
  return *in_hand;
}

}  // namespace odmoe
