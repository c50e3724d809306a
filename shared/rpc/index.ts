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
export { MessagePeerStream, type MessageDuplex, type PeerStream, type StreamEnding } from './peer-stream.js';
export type { PeerMessage, StreamPace } from './stream-pace.js';
export { GrpcTransport } from './grpc-transport.js';
export type { PackSource, RpcServer, RpcServerOptions, Transport } from './transport.js';
export {
  atDialledAddress,
  emptyNodeStatus,
  ownNodeStatus,
  STATUS_INTERVAL_MS,
  type ProcessFigures,
  type StatusDevice,
} from './node-status.js';
export { passOfSequence, rowCount, rowsOutside, selectRows } from './pass-rows.js';
export type * from './messages.js';
