import type { EmulationSettings } from '../config/node-settings.js';
import type { NetworkTransit } from '../rpc/network-transit.js';
import type { DeviceProfile } from './device-profile.js';
import { loadDeviceProfile } from './load-device-profile.js';
import { messageBytes } from './message-bytes.js';
import { EmulatedNetworkCard } from './network-card.js';

const NS_PER_MS = 1e6;

/** Ms of the clock that all processes of a machine share (CLOCK_MONOTONIC). */
function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / NS_PER_MS;
}

/** The emulated network of one daemon: one card, shared by all its peer streams. `waitUntil` is native's. */
export function createNetworkTransit(
  profile: DeviceProfile,
  waitUntil: (monotonicMs: number) => Promise<void>,
  now: () => number = monotonicMs,
): NetworkTransit {
  const card = new EmulatedNetworkCard(profile.network);
  return {
    now,
    waitUntil,
    sent: (message) => card.sendEnd(messageBytes(message, profile), now()),
    received: (message, sentMs) => card.receiveEnd(messageBytes(message, profile), sentMs, now()),
  };
}

/** As createNetworkTransit, for a daemon's settings; null: its network is the real one. */
export function networkTransitOf(
  emulation: EmulationSettings | null,
  waitUntil: (monotonicMs: number) => Promise<void>,
): NetworkTransit | null {
  return emulation === null ? null : createNetworkTransit(loadDeviceProfile(emulation.profilePath), waitUntil);
}
