import type { CarriedBytes } from '../../network/channel.js';
import type { MainCounters } from './main-counters.js';

/** Main must count, for each node, all bytes of messages sent to it and received from it, over all connections. */
export function checkLinkBytes(counters: MainCounters, carried: ReadonlyMap<string, CarriedBytes>): string[] {
  return [...carried].flatMap(([node, { sent, arrived }]) => {
    const toldSent = counters.get(`odmoe_link_sent_bytes_total{node="${node}"}`);
    const toldReceived = counters.get(`odmoe_link_received_bytes_total{node="${node}"}`);
    // Main reports nothing about nodes that are not connected.
    if (toldSent === undefined || (toldSent === sent && toldReceived === arrived)) return [];
    return [
      `main tells of ${toldSent} bytes sent to ${node} and ${toldReceived} received, and they were ${sent} and ${arrived}`,
    ];
  });
}
