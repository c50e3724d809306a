/** Version of proto/odmoe/v1 and of the rules around it. Peers of another version are refused. */
export const PROTOCOL_VERSION = 6;

export const MEGABYTE_BYTES = 1024 * 1024;
/** Names of what a daemon has open (Node.Counts). */
export const COUNTS_LIMIT = 4096;

/** Largest gRPC message either way. Tensors that need more go in several messages; callers cut them. */
export const MESSAGE_SIZE_LIMIT_BYTES = 64 * MEGABYTE_BYTES;

/** Largest message that carries no tensor, and nothing for each token or daemon (wire-limits.ts). */
export const PLAIN_MESSAGE_LIMIT_BYTES = 2 * MEGABYTE_BYTES;

/** Largest message that is taken of a peer that is to send no tensors. grpc-js gathers a message before it is looked at. */
export const PLAIN_RECEIVE_LIMIT_BYTES = 4 * MEGABYTE_BYTES;

/** Largest reply to a single call. */
export const REPLY_SIZE_LIMIT_BYTES = 17 * MEGABYTE_BYTES;

/** Most prompt tokens of one reply that tells their log-probabilities. */
export const PROMPT_PIECE_TOKENS = 64;

/** What a PeerStream may hold unsent before it gives its peer up. */
export const STREAM_BACKLOG_LIMIT_BYTES = 256 * 1024 * 1024;

/** How long the orderly end of a stream or a server may take before it is forced. */
export const CLOSE_GRACE_MS = 2000;

/** HTTP/2 window of a client: what a peer may have on the way to us before it waits. */
export const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

/** The same for pieces of a pack: a slow link must carry it before a ping's answer counts as late. */
export const PACK_WINDOW_BYTES = 256 * 1024;

/** Most rows of hidden states or of a cache in one message. */
export const ROWS_LIMIT = 65_536;

/** Longest text in one message that is not a prompt: ids, names, addresses, error messages. */
export const TEXT_LENGTH_LIMIT = 4096;

/** How long a connection may take to come about. */
export const CONNECT_TIMEOUT_MS = 3000;

/** How long a stream's first message may take: hello from its opener, the answer from the other side. */
export const HANDSHAKE_TIMEOUT_MS = 5000;

/** Largest piece of a pack in one message, and how many of them one stream holds for a reader before it waits for it. */
export const PACK_PIECE_BYTES = 256 * 1024;
export const PACK_PIECES_HELD_LIMIT = 4;

/** Replies of a stream that wait for their reader before the next one is made. */
export const REPLIES_HELD_LIMIT = 16;

/** How long a peer may send nothing of what it was asked for before the call is given up. */
export const PIECE_IDLE_LIMIT_MS = 15_000;

/** Daemons that a worker asks for what it lacks. */
export const PACK_SOURCES_LIMIT = 64;

/** How long a client may leave the replies to its call untaken before the call is given up, and what it holds freed. */
export const SLOW_READER_LIMIT_MS = 60_000;

/** Most streams and calls that one connection may have open. */
export const CONCURRENT_STREAMS_LIMIT = 1024;

/** How often a server asks whether a client is still there, and how long the client may take to answer. */
export const CLIENT_CHECK_INTERVAL_MS = 10_000;
export const CLIENT_CHECK_TIMEOUT_MS = 20_000;

/** How often a user's client asks whether main is still there, and how long main may be busy with something else. */
export const MAIN_CHECK = { keepaliveIntervalMs: 5000, keepaliveTimeoutMs: 20_000 };
