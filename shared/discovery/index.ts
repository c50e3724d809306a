export { findMains, multicastDiscovery, type Discovery, type Stoppable } from './discovery.js';
export { JoinLoop } from './join-loop.js';
export { probeMulticast, type MulticastProbe } from './probe-multicast.js';
export type { DiscoveredPeer } from './txt-record.js';
