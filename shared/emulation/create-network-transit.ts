import type { EmulationSettings } from '../config/node-settings.js';
import type { NetworkTransit } from '../rpc/network-transit.js';
import type { DeviceProfile } from './device-profile.js';
import { loadDeviceProfile } from './load-device-profile.js';
import { messageBytes } from './message-bytes.js';
import { EmulatedNetworkCard } from './network-card.js';

/** Ms of the clock that all processes of a machine share (CLOCK_MONOTONIC): native's waitUntil and eventTimeMs. */
export interface EmulatedClock {
  readonly waitUntil: (monotonicMs: number) => Promise<void>;
  readonly now: () => number;
}

/** The emulated network of one daemon: one card, shared by all its peer streams. */
export function createNetworkTransit(profile: DeviceProfile, { waitUntil, now }: EmulatedClock): NetworkTransit {
  const card = new EmulatedNetworkCard(profile.network);
  return {
    now,
    waitUntil,
    sent: (message) => card.sendEnd(messageBytes(message, profile), now()),
    received: (message, sentMs) => card.receiveEnd(messageBytes(message, profile), sentMs, now()),
  };
}

/** As createNetworkTransit, for a daemon's settings; null: its network is the real one. */
export function networkTransitOf(emulation: EmulationSettings | null, clock: EmulatedClock): NetworkTransit | null {
  return emulation === null ? null : createNetworkTransit(loadDeviceProfile(emulation.profilePath), clock);
}
