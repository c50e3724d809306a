import type { CarriedBytes } from '../../network/channel.js';
import type { MainCounters } from './main-counters.js';

/** Main must count, for each node, all bytes of messages sent to it and received from it, over all connections. */
export function checkLinkBytes(counters: MainCounters, carried: ReadonlyMap<string, CarriedBytes>): string[] {
  return [...carried].flatMap(([node, { sent, arrived }]) => {
    const reportedSent = counters.get(`odmoe_link_sent_bytes_total{node="${node}"}`);
    const reportedReceived = counters.get(`odmoe_link_received_bytes_total{node="${node}"}`);
    // Main reports nothing about nodes that are not connected.
    if (reportedSent === undefined || (reportedSent === sent && reportedReceived === arrived)) return [];
    return [
      `main tells of ${reportedSent} bytes sent to ${node} and ${reportedReceived} received, and they were ${sent} and ${arrived}`,
    ];
  });
}
