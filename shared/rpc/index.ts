export {
  HANDSHAKE_TIMEOUT_MS,
  PROTOCOL_VERSION,
  MESSAGE_SIZE_LIMIT_BYTES,
  PACK_PIECE_BYTES,
  PACK_SOURCES_LIMIT,
  ROWS_LIMIT,
  STREAM_BACKLOG_LIMIT_BYTES,
} from './limits.js';
export { dialAddress, formatAddress, hostOf, isAddress, isWildcardHost, parseAddress } from './addresses.js';
export { isLoopbackHost } from './credentials.js';
export { checkPeer } from './peer-check.js';
export { PeerGreeting } from './peer-greeting.js';
export type { NetworkTransit, PeerMessage } from './network-transit.js';
export type { PeerStream } from './peer-stream.js';
export { openShadowStream, openWorkerStream } from './peer-client.js';
export { fetchStatus, generate, identifyPeer, joinMain } from './calls.js';
export { openPackSource, type PackSource } from './pack-client.js';
export { startRpcServer, type RpcServer, type RpcServerOptions } from './rpc-server.js';
export {
  atDialledAddress,
  emptyNodeStatus,
  ownNodeStatus,
  STATUS_INTERVAL_MS,
  type StatusDevice,
} from './node-status.js';
export type * from './messages.js';
