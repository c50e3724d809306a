export { advertisedAddress } from './advertised-address.js';
export { avoidMarkingPauses } from './collection-pauses.js';
export { createNodeIdentity, describeDevice } from './node-identity.js';
export { requireWanted, runDaemon, STOP_TIMEOUT_MS, type GiveUp, type StartNode } from './run-daemon.js';
