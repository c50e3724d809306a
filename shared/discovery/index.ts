export { advertise, findMains, findPeers, watchPeers, type Stoppable } from './discovery.js';
export type { DiscoveredPeer } from './txt-record.js';
