#include "odmoe/event_time.h"

namespace odmoe {
namespace {

thread_local std::optional<EventTime> in_hand;

}  // namespace

std::optional<EventTime> event_in_hand() { return in_hand; }

void set_event_in_hand(const std::optional<EventTime>& event) { in_hand = event; }

void come_to_event(const std::optional<EventTime>& event) {
  if (event.has_value() && (!in_hand.has_value() || *event > *in_hand)) in_hand = event;
}

EventTime counts_from(const std::optional<EventTime>& event, EventTime now) {
  if (!event.has_value() || *event > now || now - *event > kEventLagLimit) return now;
  return *event;
}

EventTime event_time() { return counts_from(in_hand, std::chrono::steady_clock::now()); }

}  // namespace odmoe
