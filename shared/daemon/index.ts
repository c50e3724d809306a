export { avoidMarkingPauses } from './collection-pauses.js';
export { runDaemon, STOP_TIMEOUT_MS, type StartNode } from './run-daemon.js';
