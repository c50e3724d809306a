// Under emulation what happens at a certain time is noticed a little later: a thread must wake up, the event loop come to it. What follows
// from an event therefore counts from the event's own time, so that such lateness does not add up over the many steps of a token.
// Per thread: the event that is being handled. Calls take it along to the threads that work for them and back.
#pragma once
#include <chrono>
#include <optional>

namespace odmoe {

using EventTime = std::chrono::steady_clock::time_point;

// An event longer ago has not been handled late: something else goes on, which counts from now.
inline constexpr std::chrono::milliseconds kEventLagLimit{2};

// Nothing: no emulated event is being handled.
std::optional<EventTime> event_in_hand();
void set_event_in_hand(const std::optional<EventTime>& event);
// The thread comes to another event. Time does not go back: where several must have happened (two results that a layer waits for), what
// follows counts from the latest, whichever is noticed last.
void come_to_event(const std::optional<EventTime>& event);

// What is done at `now` after the event counts from the event, or from now where there is none or it is long past. Pure.
EventTime counts_from(const std::optional<EventTime>& event, EventTime now);
// The same for the event in hand and the present.
EventTime event_time();

}  // namespace odmoe
